package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// action is a command on a lock on a server behind a proxy, on which something happens before the server
// gets the script.
type action struct {
	addr  string // of the server
	proxy string
	net   *netfault.Network
	log   string // of the audit
}

func newAction(t *testing.T, before func(*action) error) *action {
	t.Helper()
	a := &action{addr: servertest.RedisForTest(t).Addr(), log: filepath.Join(t.TempDir(), "audit.jsonl"), net: netfault.New((&net.Dialer{}).DialContext)}
	a.net.Before = func(command string) func() error {
		if command != "EVAL" || before == nil {
			return nil
		}
		return func() error { return before(a) }
	}
	p := check.Must(a.net.Listen("tcp", a.addr))(t)
	t.Cleanup(func() { check.NoError(t, p.Close()) })
	a.proxy = p.Addr()
	return a
}

// run runs release with further arguments. When the audit log says that the outcome is unknown, it calls
// then.
func (a *action) run(t *testing.T, then func(), args ...string) outcome {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, func() bool { return then == nil || strings.Contains(a.audit(), `"outcome":"unknown"`) })
		if then != nil {
			then()
		}
	}()
	got := locktop(t, append([]string{"release", "--write", "--yes", "--audit-log", a.log, "--timeout", "3s", "-u", "redis://" + a.proxy}, args...)...)
	<-done
	return got
}

func (a *action) audit() string {
	text, _ := os.ReadFile(a.log)
	return string(text)
}

// outcomes returns the outcomes in the audit log, which belong to one action.
func (a *action) outcomes(t *testing.T) (all []keyspace.Outcome) {
	t.Helper()
	lines := auditedIn(t, a.log)
	for _, l := range lines {
		check.Equal(t, l.ID, lines[0].ID, "the id of a line")
		all = append(all, l.Outcome)
	}
	return all
}

// A release without an answer is neither done nor failed. What the next look finds is said, and is a
// further line of the audit log, in which no line has a token.
func TestARecordOfAnActionHasItsTruthAndNoToken(t *testing.T) {
	t.Parallel()
	documented := readText(t, "../docs/json.md")
	for name, c := range map[string]struct {
		before func(*testing.T, *action) error
		then   func(*testing.T, *action)
		code   int
		says   []string
		ends   []keyspace.Outcome
	}{
		"done": {code: exitFine, ends: []keyspace.Outcome{keyspace.Done}},
		"changed": {
			before: func(t *testing.T, a *action) error {
				send(t, a.addr, "SET", "lock:a", otherToken, "PX", 60_000)
				return nil
			},
			code: exitChanged, says: []string{"now held by"}, ends: []keyspace.Outcome{keyspace.Changed},
		},
		"refused": {
			before: func(t *testing.T, a *action) error { send(t, a.addr, "ACL", "SETUSER", "default", "-eval"); return nil },
			code:   exitFailure, says: []string{"NOPERM"}, ends: []keyspace.Outcome{keyspace.Failed},
		},
		"released, and the answer is lost": {
			before: func(_ *testing.T, a *action) error { a.net.FreezeReplies(); return nil },
			then:   func(_ *testing.T, a *action) { a.net.Heal() },
			code:   exitFailure, ends: []keyspace.Outcome{keyspace.Unanswered, keyspace.Gone},
			says: []string{"no answer: it may or may not be released", "lock:a: it is gone; whether this action did it is not known"},
		},
		"not released, because the script is lost": {
			before: func(_ *testing.T, a *action) error { a.net.Cut(); return errors.New("lost") },
			then:   func(*testing.T, *action) {},
			code:   exitFailure, ends: []keyspace.Outcome{keyspace.Unanswered, keyspace.StillHeld},
			says: []string{"no answer: it may or may not be released", "lock:a: it is still held: not released so far"},
		},
		"released, and taken by another client": {
			before: func(_ *testing.T, a *action) error { a.net.FreezeReplies(); return nil },
			then: func(t *testing.T, a *action) {
				eventually(t, func() bool { return value(t, a.addr, "lock:a") == "" })
				send(t, a.addr, "SET", "lock:a", otherToken, "PX", 60_000)
				a.net.Heal()
			},
			code: exitFailure, ends: []keyspace.Outcome{keyspace.Unanswered, keyspace.Taken},
			says: []string{"no answer", "lock:a: another holder has it: the hold that you saw has ended"},
		},
		"the server does not answer any more": {
			before: func(_ *testing.T, a *action) error {
				a.net.Refuse(errors.New("cut"))
				a.net.FreezeReplies()
				return nil
			},
			then: func(*testing.T, *action) {},
			code: exitFailure, says: []string{"no answer", "lock:a: it is still not known"}, ends: []keyspace.Outcome{keyspace.Unanswered},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAction(t, func(a *action) error {
				if c.before == nil {
					return nil
				}
				return c.before(t, a)
			})
			send(t, a.addr, "SET", "lock:a", token, "PX", 60_000)
			var then func()
			if c.then != nil {
				then = func() { c.then(t, a) }
			}
			got := a.run(t, then, "lock:a", "--json")
			got.says(t, c.code, c.says...)
			last := c.ends[len(c.ends)-1]
			check.True(t, decoded[jsonRelease](t, got.out).Locks[0].Outcome == last, "the outcome is not %s: %s", last, got.out)
			check.True(t, slices.Equal(a.outcomes(t), append([]keyspace.Outcome{keyspace.Intended}, c.ends...)), "the outcomes are %v", a.outcomes(t))
			for _, secret := range []string{token, otherToken} {
				check.False(t, strings.Contains(a.audit(), secret), "the audit log has the token: %s", a.audit())
			}
			for _, o := range c.ends {
				check.True(t, strings.Contains(documented, "`"+string(o)+"`"), "docs/json.md does not explain %s", o)
			}
		})
	}
}

// The numbers of several locks tell those without an answer from those that are as they were.
func TestLocksWithoutAnAnswerAreCountedApart(t *testing.T) {
	t.Parallel()
	n := 0
	a := newAction(t, func(a *action) error {
		if n++; n == 2 {
			a.net.FreezeReplies()
		}
		return nil
	})
	for _, key := range []string{"lock:1", "lock:2", "lock:3"} {
		send(t, a.addr, "SET", key, "web-1.prod:4711", "PX", 600_000)
	}
	got := a.run(t, a.net.Heal, "--owner", "web-1.prod:4711")
	got.says(t, exitFailure, "1 lock without an answer: lock:2", "it is gone")
	check.True(t, got.out == "released 2 of 3 locks of web-1.prod:4711\n" && !strings.Contains(got.errors, "left as they are"), "%+v", got)
	check.False(t, strings.Contains(a.audit(), "web-1.prod:4711"), "the audit log has the token: %s", a.audit())
}

// A screen that is left during an action ends after the outcome of the action is in the audit log.
func TestTheOutcomeIsLoggedBeforeTheScreenEnds(t *testing.T) {
	t.Parallel()
	srv, log := servertest.RedisForTest(t), filepath.Join(t.TempDir(), "audit.jsonl")
	send(t, srv.Addr(), "SET", "lock:a", token, "PX", 600_000)
	term := openTerminal(t, 100, 24, "--write", "--audit-log", log, "--timeout", "500ms", "-u", "redis://"+srv.Addr())
	term.want("lock:a").press("x").want("release it").press("r").want("leave it")
	check.NoError(t, srv.Freeze())
	term.press("y")
	eventually(t, func() bool { return len(auditedIn(t, log)) == 1 })
	term.quit()
	lines := auditedIn(t, log)
	check.True(t, len(lines) == 2 && lines[1].Outcome == keyspace.Unanswered, "%+v", lines)
}

// With three of five servers down, the question says so, and the lock is not released.
func TestARedlockIsNotReleasedByAMinorityOfItsServers(t *testing.T) {
	t.Parallel()
	rig := servertest.IndependentForTest(t, 5)
	all := nodesOf(rig)
	for _, addr := range all {
		send(t, addr, "SET", "lock:a", token, "PX", 600_000)
	}
	for _, n := range rig.Nodes()[2:] {
		check.NoError(t, n.Kill())
	}
	locktop(t, append([]string{"release", "lock:a"}, redlockFlags(rig)...)...).
		says(t, exitUsage, "it is on 2 of 5 servers; 3 did not answer and may have it, too: "+strings.Join(all[2:], ", "))
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	locktop(t, append([]string{"release", "lock:a", "--write", "--yes", "--audit-log", log}, redlockFlags(rig)...)...).
		says(t, exitFailure, "not released: 3 of 5 servers did not answer and may hold a majority")
	lines := auditedIn(t, log)
	check.True(t, len(lines) == 2 && lines[0].ServerCount == 5 && slices.Equal(lines[0].Servers, all) && lines[1].Outcome == keyspace.Failed &&
		slices.Equal(lines[1].Servers, all[:2]) && slices.Equal(lines[1].Unanswered, all[2:]) && lines[1].ServerCount == 5, "%+v", lines)
}

// An action goes to the master, also if the flags prefer replicas. A replica without its master is refused
// before the question.
func TestAnActionGoesToTheMaster(t *testing.T) {
	t.Parallel()
	rig := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{})
	master, replica := rig.Master().Addr(), rig.Replicas()[0].Addr()
	send(t, master, "SET", "lock:a", token, "PX", 600_000)
	for _, args := range [][]string{{"lock:a", "--dry-run"}, {"lock:a", "--write"}, {"--owner", token, "--write"}} {
		locktop(t, append([]string{"release", "-u", "redis://" + replica}, args...)...).
			fails(t, exitUsage, replica+"/0 is a replica; use the address of its master, "+master)
	}
}

func TestAnActionGoesToTheMasterBehindSentinels(t *testing.T) {
	testtier.Long(t, "it starts Sentinels")
	t.Parallel()
	rig := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
	releasesOnTheMaster(t, rig.Master().Addr(), sentinelFlags(rig)...)
}

func TestAnActionGoesToTheMasterOfACluster(t *testing.T) {
	testtier.Long(t, "it starts a cluster with replicas")
	t.Parallel()
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{Replicas: 1})
	slot := int(clusterClient(t, rig).ClusterKeySlot(t.Context(), "lock:a").Val())
	releasesOnTheMaster(t, check.Must(rig.Owner(t.Context(), slot))(t).Addr(), "--cluster", "-u", "redis://"+rig.Addrs()[0])
}

// releasesOnTheMaster releases a lock with --prefer-replica.
func releasesOnTheMaster(t *testing.T, master string, flags ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	send(t, master, "SET", "lock:a", token, "PX", 600_000)
	host, port, _ := net.SplitHostPort(master)
	flags = append(flags, "--prefer-replica")
	eventually(t, func() bool { // the lock is read from a replica
		doc, _ := listedOn(t, flags...)
		return len(doc.Locks) == 1 && !slices.ContainsFunc(doc.Nodes, func(n render.Node) bool { return n.Role != "slave" })
	})
	args := append([]string{"release", "lock:a"}, flags...)
	locktop(t, append(args, "--dry-run")...).prints(t, exitFine, "redis-cli -h "+host+" -p "+port)
	locktop(t, append(args, "--write", "--yes", "--audit-log", log)...).prints(t, exitFine, "lock:a is released")
	check.Equal(t, value(t, master, "lock:a"), "", "the lock")
	lines := auditedIn(t, log)
	check.True(t, len(lines) == 2 && slices.Equal(lines[1].Servers, []string{master}), "%+v", lines)
}
