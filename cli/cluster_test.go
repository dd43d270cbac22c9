package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// troubled is a cluster with a fault.
type troubled struct {
	*servertest.Cluster
	rdb   server.Client
	flags []string
	tag   string // of keys in slot 0, a slot of the first master
}

// timeoutOfTrouble is long enough for a busy machine.
const timeoutOfTrouble = 3 * time.Second

// aClusterFor starts a cluster with locks in slot 0 and in others.
func aClusterFor(t *testing.T, o servertest.ClusterOptions, inSlot, elsewhere int) troubled {
	t.Helper()
	c := troubled{Cluster: servertest.ClusterForTest(t, o)}
	c.rdb = clusterClient(t, c.Cluster)
	c.flags = []string{"--cluster", "--timeout", timeoutOfTrouble.String(), "-u", "redis://" + c.Addrs()[0]}
	c.tag = tagOf(t, c.rdb, 0)
	for i := range inSlot {
		c.lock(t, c.moving(i))
	}
	for i := range elsewhere {
		c.lock(t, fmt.Sprintf("lock:%d", i))
	}
	return c
}

// moving returns the key of a lock in slot 0.
func (c troubled) moving(i int) string { return fmt.Sprintf("lock:{%s}:%d", c.tag, i) }

// lock acquires a lock for an hour.
func (c troubled) lock(t *testing.T, key string) {
	t.Helper()
	check.NoError(t, c.rdb.Set(t.Context(), key, token, time.Hour).Err())
}

// run runs a locktop command on the cluster.
func (c troubled) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return locktop(t, slices.Concat(args, c.flags)...)
}

// soon runs a locktop command, which must not wait for long.
func (c troubled) soon(t *testing.T, args ...string) outcome {
	t.Helper()
	began := time.Now()
	got := c.run(t, args...)
	took := time.Since(began)
	check.True(t, took <= 3*timeoutOfTrouble, "%v takes %v", args, took)
	return got
}

// list runs list and returns its document and exit code.
func (c troubled) list(t *testing.T) (doc render.Document, got outcome) {
	t.Helper()
	got = c.run(t, "list", "--json", "--budget", "full")
	if got.out != "" {
		doc = decoded[render.Document](t, got.out)
	}
	return doc, got
}

// One of three masters is down, and the others have detected it.
func TestAMasterThatIsDeadIsNamedAtOnce(t *testing.T) {
	long(t, "masters die under every command")
	for name, args := range map[string][]string{"down": nil, "partly served": {"--cluster-require-full-coverage", "no"}, "read only": {"--cluster-allow-reads-when-down", "yes"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := aClusterFor(t, servertest.ClusterOptions{Args: args}, 1, 30)
			dead := c.Nodes()[1]
			all, _ := c.list(t)
			c.KillForTest(t, dead)
			readable := name != "down"
			for _, command := range [][]string{
				{"list"}, {"list", "--json"}, {"list", "-n", "all"}, {"inspect", c.moving(0)}, {"inspect", "no:such:key"},
				{"doctor", "--for", "500ms"}, {"doctor", "--json", "--for", "500ms"}, {"watch", "--for", "2s"}, {"watch", "--json", "--for", "2s"},
			} {
				got := c.soon(t, command...)
				check.True(t, got.code != exitFine && got.code != exitNoLock, "%v ends with %d: %s", command, got.code, got.errors)
				check.True(t, strings.Contains(got.errors, dead.Addr()), "%v does not name %s: %s", command, dead.Addr(), got.errors)
				lines := strings.Count(got.errors, "\n")
				check.True(t, lines == 1 || command[0] == "watch", "%v says on %d lines: %s", command, lines, got.errors)
				check.True(t, command[0] != "inspect" || !readable || strings.Contains(got.out, token) == (command[1] == c.moving(0)),
					"%v prints %s", command, got.out)
			}
			doc, got := c.list(t)
			check.True(t, got.code == exitFailure && !doc.Complete && len(doc.Nodes) == 3,
				"exit code %d, complete %v, nodes %+v", got.code, doc.Complete, doc.Nodes)
			left := slices.DeleteFunc(all.Locks, func(l render.Lock) bool { return l.Node == dead.Addr() })
			check.True(t, len(left) < 31 && len(doc.Locks) == map[bool]int{true: len(left)}[readable],
				"%d locks are shown, %d are left", len(doc.Locks), len(left))
			check.True(t, !readable || len(strings.Fields(nodesUp(doc))) == 2 && strings.Contains(got.errors, dead.Addr()+" is missing"),
				"up: %s; it says %q", nodesUp(doc), got.errors)
		})
	}
}

// The screen continues with the masters that answer, and names the one that
// does not. watch also reports it as an event.
func TestTheScreenAndWatchNameAMasterThatDies(t *testing.T) {
	long(t, "Sentinels replace a master")
	c := aClusterFor(t, servertest.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}}, 5, 0)
	term := openTerminal(t, 220, 40, c.flags...) // on a busy machine the line also says which lock is most blocked
	term.want("5 locks")
	w := startWatch(t, append([]string{"--for", "12s"}, c.flags...)...)
	w.out.sees(t, "appeared "+c.moving(0))
	dead := c.Nodes()[1]
	c.KillForTest(t, dead)
	w.out.sees(t, "finding server, critical: "+dead.Addr()+" cannot be read")
	w.errs.sees(t, dead.Addr()+" cannot be read")
	term.want(dead.Addr()+" cannot be read", "5 locks")
	term.press("4").want("down", dead.Addr())
	term.quit()
	c.lock(t, c.moving(7))
	w.out.sees(t, "acquired "+c.moving(7))
	w.exits(exitFailure)
	said := w.out.String()
	check.True(t, !strings.Contains(said, "released") && !strings.Contains(said, "gone"), "nobody released anything:\n%s", said)
}

// A cluster without a master of some slots refuses all clients. That is one finding, and nobody misses a renewal
// that the cluster refuses.
func TestWatchSaysThatAClusterRefusesItsClients(t *testing.T) {
	long(t, "a cluster notices that a node has failed")
	c := aClusterFor(t, servertest.ClusterOptions{}, 5, 0)
	w := startWatch(t, append([]string{"--for", "12s"}, c.flags...)...)
	w.out.sees(t, "appeared "+c.moving(0))
	dead := c.Nodes()[1]
	c.KillForTest(t, dead)
	w.out.sees(t, `finding server, critical: The cluster refuses its clients \(CLUSTERDOWN at .*\): `+dead.Addr()+" cannot be read")
	w.exits(exitFailure)
	for _, node := range c.Nodes() {
		check.Equal(t, strings.Contains(w.out.String(), node.Addr()+" cannot be read: its locks"), node == dead, "%s is told as down in\n%s", node.Addr(), w.out.String())
	}
	check.False(t, strings.Contains(w.out.String(), "the next renewal is"), "%s", w.out.String())
}

// A replica that has lost its master shows old data.
func TestAReplicaThatHasLostItsMasterIsNotComplete(t *testing.T) {
	t.Parallel()
	r := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{Replicas: 1})
	replica := r.Replicas()[0].Addr()
	replicated(t, r.Master().Addr(), "SET", "lock:a", token, "PX", 600_000)
	got := locktop(t, "doctor", "--for", "0s", "-u", "redis://"+replica)
	check.True(t, got.code == exitFine, "exit code %d, %s", got.code, got.out)
	check.NoError(t, r.Master().Kill())
	eventually(t, func() bool {
		got := locktop(t, "doctor", "--for", "0s", "-u", "redis://"+replica)
		return got.code == exitFindings && strings.Contains(got.out, "master-link-down") && strings.Contains(got.out, r.Master().Addr())
	})
	lost := replica + " is a replica that has lost its master " + r.Master().Addr()
	for _, command := range []string{"list", "list --fail-if-stuck", "inspect lock:a", "inspect nothing"} {
		got := locktop(t, append(strings.Fields(command), "--json", "-u", "redis://"+replica)...)
		check.True(t, got.code == exitFailure && strings.Count(got.errors, lost) == 1, "%s ends with %d, %s", command, got.code, got.errors)
		check.True(t, got.out == "" == (command == "inspect nothing") && (got.out == "" || strings.Contains(got.out, `"complete":false`) && strings.Contains(got.out, `"problems":["`+lost)),
			"%s prints %s", command, got.out)
	}
}

// A master that hangs neither answers nor refuses connections.
func TestAHangingMasterBlocksNoCommand(t *testing.T) {
	long(t, "every command runs into a time limit")
	c := aClusterFor(t, servertest.ClusterOptions{NodeTimeout: time.Minute}, 1, 30)
	hanging := c.Nodes()[1]
	check.NoError(t, hanging.Freeze())
	defer hanging.Continue()
	for _, command := range [][]string{{"list"}, {"inspect", c.moving(0)}, {"doctor", "--for", "500ms"}, {"watch", "--for", (2 * timeoutOfTrouble).String()}} {
		got := c.soon(t, command...)
		check.True(t, got.code != exitFine && strings.Contains(got.errors, hanging.Addr()), "%v ends with %d: %s", command, got.code, got.errors)
	}
}

func TestANodeOfAClusterSaysThatItIsNotAll(t *testing.T) {
	long(t, "it starts a cluster")
	c := aClusterFor(t, servertest.ClusterOptions{}, 3, 0)
	const hint = "add --cluster"
	alone := []string{"-u", "redis://" + c.Addrs()[0]}
	doc, said := listedOn(t, alone...)
	check.True(t, len(doc.Locks) == 3 && strings.Contains(strings.Join(doc.Problems, " "), hint) && strings.Contains(said, hint),
		"%d locks; problems %q; it says %q", len(doc.Locks), doc.Problems, said)
	got := locktop(t, append([]string{"inspect", c.moving(0)}, alone...)...)
	check.True(t, strings.Contains(got.out, token), "inspect says %s%s", got.out, got.errors)
	if got := locktop(t, append([]string{"inspect", "x"}, alone...)...); strings.Contains(got.out, token) || !strings.Contains(got.errors+got.out, hint) {
		t.Errorf("inspect of a key of another node says %s%s", got.out, got.errors)
	}
	locktop(t, append([]string{"contention", "--for", "100ms"}, alone...)...).says(t, exitFine, hint)
	w := startWatch(t, alone...)
	w.errs.sees(t, hint)
	w.signal(os.Interrupt)
	locktop(t, append([]string{"doctor", "--for", "0s"}, alone...)...).prints(t, exitFindings, "part-of-cluster")
	term := openTerminal(t, 160, 35, alone...)
	term.want("is part of a cluster")
	term.quit()
}

func TestALockThatMovesWithItsSlotIsNotReleased(t *testing.T) {
	long(t, "slots of a cluster move")
	const locks = 10
	c := aClusterFor(t, servertest.ClusterOptions{}, locks, 0)
	w := startWatch(t, append([]string{"--json"}, c.flags...)...)
	for i := range locks {
		w.out.sees(t, `"appeared","key":"`+c.moving(i))
	}
	warmUp(t, c, w) // otherwise the other masters would not report locks
	ctx, cancel := context.WithTimeout(t.Context(), longestWait)
	defer cancel()
	for _, to := range []*server.Child{c.Nodes()[2], c.Nodes()[0], c.Nodes()[1]} {
		check.NoError(t, c.MoveSlot(ctx, 0, to))
	}
	for i := range locks {
		check.NoError(t, c.rdb.Del(ctx, c.moving(i)).Err())
	}
	for i := range locks {
		w.out.sees(t, `"(released|gone)","key":"`+c.moving(i)) // a slow machine reads some ends too late to know the reason
	}
	w.signal(os.Interrupt)
	w.exits(exitInterrupted)
	kinds := make(map[string]int)
	for line := range strings.Lines(w.out.String()) {
		e := decoded[render.Event](t, line)
		if strings.Contains(e.Key, c.tag) {
			kinds[string(e.Event)]++
			kinds["all"]++
		}
	}
	check.True(t, kinds["appeared"] == locks && kinds["released"] > 0 && kinds["released"]+kinds["gone"] == locks && kinds["all"] == 2*locks,
		"it tells of %v:\n%s", kinds, w.out)
}

// freeIfMine releases a lock as most clients do.
var freeIfMine = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

// warmUp acquires and releases locks until the watch has learnt the prefix of the locks on every node.
func warmUp(t *testing.T, c troubled, w *spawned) {
	t.Helper()
	const locks = 30 // on all nodes
	for round := range 100 {
		key := func(i int) string { return fmt.Sprintf("lock:%c%d:%d", 'a'+i%26, round, i) }
		for i := range locks {
			c.lock(t, key(i))
		}
		time.Sleep(50 * time.Millisecond) // the hold
		for i := range locks {
			check.NoError(t, c.rdb.Del(t.Context(), key(i)).Err())
		}
		c.lock(t, "lock:after")
		time.Sleep(50 * time.Millisecond)
		said, all := w.out.String(), true
		for i := range locks {
			all = all && strings.Contains(said, `"acquired","key":"`+key(i)) && strings.Contains(said, `"released","key":"`+key(i))
		}
		if all {
			return
		}
	}
	t.Fatal("the watch does not see all locks")
}

// tagOf returns a hash tag whose keys are in a slot.
func tagOf(t *testing.T, rdb server.Client, slot int64) string {
	t.Helper()
	return keysIn(t, rdb, "t", 1, func(s int64) bool { return s == slot })[0]
}

// keysIn returns n keys with a prefix, in slots that meet a condition.
func keysIn(t *testing.T, rdb server.Client, prefix string, n int, ok func(slot int64) bool) (keys []string) {
	t.Helper()
	for from := 0; len(keys) < n; from += 10_000 {
		p := rdb.Pipeline()
		var all []*redis.IntCmd
		for i := range 10_000 {
			all = append(all, p.ClusterKeySlot(t.Context(), fmt.Sprint(prefix, from+i)))
		}
		check.Must(p.Exec(t.Context()))(t)
		for i, slot := range all {
			if ok(slot.Val()) && len(keys) < n {
				keys = append(keys, fmt.Sprint(prefix, from+i))
			}
		}
	}
	return keys
}

// While three slots move, each of two masters has some of their locks. Every command that reads locks runs on the
// cluster, again and again: no server crashes, each lock is shown once, on the node that has it, and is released there.
func TestEverythingLooksAtAClusterWhoseSlotsAreHalfMoved(t *testing.T) {
	long(t, "every command reads a cluster")
	rounds := testtier.Size(2, 2, 100)
	const each, others = 10, 30
	c := aClusterFor(t, servertest.ClusterOptions{}, 0, others)
	var moving []string
	for n, slot := range []int{100, 6000, 12000} {
		tag := tagOf(t, c.rdb, int64(slot))
		for i := range each {
			key := fmt.Sprintf("lock:{%s}:%d", tag, i)
			c.lock(t, key)
			moving = append(moving, key)
		}
		c.HalfMigrationForTest(t, slot, c.Nodes()[(n+1)%3], each/2)
	}
	want := 3*each + others
	doc, got := c.list(t)
	check.True(t, len(doc.Locks) == want && doc.Server.Mode == "cluster" && len(strings.Fields(nodesUp(doc))) == 3 && got.errors == "",
		"%d locks in a %s, up: %s; %s", len(doc.Locks), doc.Server.Mode, nodesUp(doc), got.errors)
	for i := range others {
		lockNamed(t, doc, fmt.Sprint("lock:", i))
	}
	at := make(map[string]int)
	for i, key := range moving {
		node := lockNamed(t, doc, key).Node
		at[fmt.Sprint(i/each, " on ", node)]++
		seen := documentIn[jsonInspection](t, c.run(t, "inspect", "--json", key))
		check.True(t, len(seen.Holders) == 1 && seen.Holders[0].ID == token && seen.Node == node && len(seen.Entries) == 1,
			"inspect shows %+v, list had it on %s", seen, node)
	}
	for n := range 3 {
		old, next := at[fmt.Sprint(n, " on ", c.Addrs()[n])], at[fmt.Sprint(n, " on ", c.Addrs()[(n+1)%3])]
		check.True(t, old == each/2 && next == each/2, "of slot %d %d locks are on the old master and %d on the new one", n, old, next)
	}
	var pids []int
	for _, node := range c.Nodes() {
		pids = append(pids, node.PID())
	}
	for round := range rounds {
		doc, got := c.list(t)
		check.True(t, len(doc.Locks) == want && doc.Complete && got.code == exitFine,
			"list: %d locks, complete %v, exit code %d, %s", len(doc.Locks), doc.Complete, got.code, got.errors)
		for _, key := range []string{moving[round%len(moving)], moving[(round*7+3)%len(moving)], "lock:0"} {
			c.run(t, "inspect", key).prints(t, exitFine, token)
		}
		d := documentIn[jsonDiagnosis](t, c.run(t, "doctor", "--json", "--for", "100ms"))
		check.True(t, d.LockCount == want && d.Complete, "doctor: %d locks, complete %v", d.LockCount, d.Complete)
		w := startWatch(t, append([]string{"--json"}, c.flags...)...)
		for i, key := range moving {
			w.out.sees(t, fmt.Sprintf(`"appeared","key":"%s"`, key))
			if i == 0 {
				w.out.sees(t, `"appeared","key":"lock:0"`)
			}
		}
		w.signal(os.Interrupt)
		w.exits(exitInterrupted)
		if said := w.out.String(); strings.Count(said, `"appeared"`) > want || strings.Contains(said, "released") || strings.Contains(said, "gone") {
			t.Errorf("watch: %s", said)
		}
		// A lock with companions has to wait: a node does not create a second
		// key in a slot that is moving to it (TRYAGAIN).
		prefix := strings.TrimSuffix(moving[round*each%len(moving)], "0") + "load:"
		load := []string{"load", "--kind", "mutex", "--prefix", prefix, "--duration", "4s", "--keys", "5", "--clients", "5"}
		got = c.run(t, load...)
		check.True(t, got.code == exitFine, "load: exit code %d, %s", got.code, got.errors)
		term := openTerminal(t, 140, 40, c.flags...)
		term.want(fmt.Sprintf("%d locks", want))
		term.quit()
	}
	for i, node := range c.Nodes() {
		check.True(t, node.PID() == pids[i], "%s has crashed", node.Addr())
	}
	for i, key := range moving[:each] {
		c.run(t, "release", key, "--write", "--yes").says(t, exitFine)
		doc, _ := c.list(t)
		check.True(t, len(doc.Locks) == want-1-i, "%d locks are left, want %d", len(doc.Locks), want-1-i)
	}
	t.Logf("%d rounds, %d locks", rounds, want)
}
