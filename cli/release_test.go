package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/humanize"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// ran runs the program with a state directory of its own, for audited.
func ran(t *testing.T, args ...string) outcome {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return locktop(t, args...)
}

// aLock starts a server with the lock lock:a, which is held for 10 minutes.
func aLock(t *testing.T) (addr string) {
	t.Helper()
	addr = servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", 600_000)
	return addr
}

// audited returns the lines of the audit log.
func audited(t *testing.T) []auditLine {
	t.Helper()
	return auditedIn(t, filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl"))
}

// auditedIn returns the lines of an audit log; nil if there is none.
func auditedIn(t *testing.T, path string) []auditLine {
	t.Helper()
	if !fileExists(path) {
		return nil
	}
	return decodedLines[auditLine](t, readText(t, path))
}

// value returns the value of a key.
func value(t *testing.T, addr, key string) string {
	t.Helper()
	v, err := sent(t, addr, "GET", key).Text()
	check.Require(t, err == nil || err == redis.Nil, "%v", err)
	return v
}

func TestADryRunPrintsACommandThatWorks(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	const key = "lock:it's \"a\"\x01"
	send(t, addr, "SET", key, token, "PX", "60000")
	command := run(t, "release", key, "--dry-run", "-u", "redis://"+addr)
	check.True(t, value(t, addr, key) == token, "the lock is gone")
	got := pasted(t, command)
	check.True(t, got == "1" && value(t, addr, key) == "", "the command\n%s\nanswers %q", command, got)
	got = pasted(t, command)
	check.True(t, got == "0", "sent again it answers %q", got)
}

func TestWithoutAnAuditLogNothingIsDone(t *testing.T) {
	addr := aLock(t)
	for name, spoil := range map[string]func(path string) error{
		"a folder in its place": func(path string) error { return os.Mkdir(path, 0o700) },
		"others may read it":    func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644)) },
		"a full disk":           func(path string) error { return os.Symlink("/dev/full", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			check.NoError(t, spoil(path))
			got := locktop(t, "release", "lock:a", "--yes", "--write", "--audit-log", path, "-u", "redis://"+addr)
			got.fails(t, exitFailure, "nothing was changed")
			check.True(t, value(t, addr, "lock:a") == token, "the lock is gone")
		})
	}
}

func TestReleaseRefusesAKeyThatIsNoLock(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "greeting", "hello")
	for _, command := range []string{"release", "inspect"} {
		for _, key := range []string{"greeting", "nothing"} {
			locktop(t, command, key, "-u", "redis://"+addr).fails(t, exitNoLock)
		}
	}
}

func TestInspectExplainsALock(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:\x1b[2J", token, "PX", "60000")
	out := run(t, "inspect", "lock:\x1b[2J", "-u", "redis://"+addr)
	wantAll(t, out, `lock:\x1b[2J`, "held, expires in", "set-nx", "because", token, "Stored as", "string, TTL", "redis-cli -h ")
	check.False(t, strings.Contains(out, "\x1b"), "it prints a control character: %q", out)
	j := decoded[jsonInspection](t, run(t, "inspect", "lock:\x1b[2J", "--json", "-u", "redis://"+addr))
	check.True(t, j.Key == "lock:\x1b[2J" && len(j.Entries) == 1 && *j.Entries[0].Value == token && j.RedisCommand != "" && len(j.Evidence) != 0, "got %+v", j)
}

func TestDoctorReportsFindingsAndBlindSpots(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr()
	got := locktop(t, "doctor", "--for", "1ms", "-u", "redis://"+addr)
	check.True(t, got.code == exitFindings && strings.Contains(got.out, "evictable") && strings.Contains(got.out, "What cannot be seen"),
		"%+v", got)
	product := regexp.MustCompile(": (Redis|Valkey) [0-9.]+, master")
	check.True(t, product.MatchString(got.out), "it does not name the product: %s", got.out)
	send(t, addr, "SET", "lock:a", token)
	got = locktop(t, "doctor", "--json", "--for", "1ms", "-u", "redis://"+addr)
	j := decoded[jsonDiagnosis](t, got.out)
	if got.code != exitFindings || len(j.Findings) != 2 || j.Findings[0].ID != "never-expires" || j.Findings[1].ID != "evictable" || len(j.Limitations) == 0 {
		t.Errorf("code %d: %+v", got.code, j)
	}
}

// Each server of a Redlock removes the token that was seen, and no other.
func TestARedlockIsReleasedWhereItsTokenIs(t *testing.T) {
	rig := servertest.IndependentForTest(t, 3)
	for _, c := range []struct {
		name string
		have []string // the token on each server
		left []string
	}{
		{"a majority, and a copy of somebody else", []string{token, token, otherToken}, []string{"", "", otherToken}},
		{"left over on one server", []string{"", token, ""}, []string{"", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, addr := range nodesOf(rig) {
				send(t, addr, "FLUSHALL")
				if c.have[i] != "" {
					send(t, addr, "SET", "lock:a", c.have[i], "PX", "60000")
				}
			}
			got := ran(t, append([]string{"release", "lock:a", "--write", "--yes", "--token", token}, redlockFlags(rig)...)...)
			check.True(t, got.code == exitFine && got.out == "lock:a is released\n", "%+v", got)
			for i, addr := range nodesOf(rig) {
				got := value(t, addr, "lock:a")
				check.True(t, got == c.left[i], "server %d has %q, want %q", i+1, got, c.left[i])
			}
			lines := audited(t)
			check.True(t, len(lines) == 2 && lines[1].Outcome == "done", "written down: %+v", lines)
		})
	}
}

// ofOwners sets n locks lock:0 … of owner, and one of another one.
func ofOwners(t *testing.T, addr string, n int, owner string) server.Client {
	t.Helper()
	rdb := clientTo(t, addr)
	handOver(t, rdb, 0, n, owner)
	send(t, addr, "SET", "lock:other", "web-2.prod:1", "PX", "600000")
	return rdb
}

// handOver gives the locks from first on to an owner.
func handOver(t *testing.T, rdb server.Client, first, end int, owner string) {
	t.Helper()
	p := rdb.Pipeline()
	for i := first; i < end; i++ {
		p.Do(t.Context(), "SET", fmt.Sprintf("lock:%d", i), owner, "PX", "600000")
	}
	check.Must(p.Exec(t.Context()))(t)
}

// Locks that change hands while the question is on the terminal are left to their new owner.
func TestReleaseOwnerReleasesTheLocksThatItStillHolds(t *testing.T) {
	t.Parallel()
	n := testtier.Size(50, 1000, 1000)
	stolen := n / 10
	addr := servertest.RedisForTest(t).Addr()
	const owner = "web-1.prod:4711"
	rdb := ofOwners(t, addr, n, owner)
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	program := check.Must(executable())(t)
	line := fmt.Sprintf("%s release --owner %s --write --audit-log %s -u redis://%s; echo exit code $?; exec sleep 1000", program, owner, log, addr)
	term := openTerminalFor(t, 200, 24, "sh", "-c", line)
	term.want(fmt.Sprintf("%s holds %s: lock:", owner, humanize.Plural(n, "lock")), fmt.Sprintf("%d more; it is not notified", n-3), "Type y to confirm")
	handOver(t, rdb, 0, stolen, "web-3.prod:9")
	term.press("y").press("Enter")
	term.want(fmt.Sprintf("released %d of %s of %s", n-stolen, humanize.Plural(n, "lock"), owner), fmt.Sprintf("%d locks left as they are: lock:", stolen), "held by web-3.prod:9", "exit code 5")

	left, err := rdb.DBSize(t.Context()).Result()
	if err != nil || int(left) != stolen+1 || value(t, addr, "lock:0") != "web-3.prod:9" || value(t, addr, "lock:other") != "web-2.prod:1" {
		t.Errorf("%d keys are left, want %d: %v", left, stolen+1, err)
	}
	outcomes := map[string]int{}
	intended := map[string]bool{}
	for _, l := range auditedIn(t, log) {
		outcomes[string(l.Outcome)]++
		if l.Outcome == "intended" {
			intended[l.ID] = true
		} else if !intended[l.ID] {
			t.Errorf("%s: an outcome before its intent", l.Key)
		}
	}
	check.True(t, outcomes["intended"] == n && outcomes["done"] == n-stolen && outcomes["changed"] == stolen && len(outcomes) == 3,
		"audit lines: %v", outcomes)
}

// The question says of a lock that is renewed that it does not end by itself; one look cannot know it.
func TestTheQuestionBeforeAReleaseKnowsOfRenewals(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	send(t, addr, "SET", "lock:a", token, "PX", "30000")
	looked := locktop(t, "inspect", "lock:a", "-u", "redis://"+addr)
	check.True(t, strings.Contains(looked.out, "Exact release, only of this hold\n  Its holder will still believe it holds the lock and keep working. It would end by itself in ") &&
		strings.Contains(looked.out, "unless it is renewed, which one read does not show."), "%s", looked.out)

	program := check.Must(executable())(t)
	term := openTerminalFor(t, 300, 24, program, "release", "lock:a", "--write", "-u", "redis://"+addr)
	term.wait("the question, while its holder renews it", func(screen string) bool {
		check.NoError(t, rdb.Do(t.Context(), "PEXPIRE", "lock:a", "30000").Err())
		return strings.Contains(screen, "Type y to confirm")
	})
	term.want("lock:a is held by "+token, "It will not end by itself: it was renewed 2 times, the last time ", "so a client that renews it is alive. Stop the holder first.")
}

// What a release and a deadline do to a holder and to the next one is told with the command, too.
func TestADryRunTellsTheConsequence(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "SINGLETONLOCK_900150983cd24fb0d6963f7d28e17f72", token)
	send(t, addr, "HSET", "huey.results.app", "app.lock.nightly", "1")
	const late = "it frees the next holder's lock"
	for args, want := range map[string]string{
		"": "will still believe it holds the lock", "--give-ttl 30s": "it ends in 30 s, even while its holder still works",
	} {
		got := locktop(t, append([]string{"release", "SINGLETONLOCK_900150983cd24fb0d6963f7d28e17f72", "--dry-run", "-u", "redis://" + addr}, strings.Fields(args)...)...)
		check.True(t, got.code == exitFine && strings.HasPrefix(got.out, "redis-cli ") && strings.Contains(got.errors, want) && strings.Contains(got.errors, late), "%s: %+v", args, got)
	}
	got := locktop(t, "release", "huey.results.app", "--give-ttl", "30s", "--dry-run", "-u", "redis://"+addr)
	check.True(t, got.code == exitFailure && strings.Contains(got.errors, "stores no deadline that others may change; the lock can only be released"), "%+v", got)
	got = locktop(t, "release", "--owner", token, "-u", "redis://"+addr)
	check.True(t, strings.Contains(got.errors, "1 lock: SINGLETONLOCK_") && strings.Contains(got.errors, late), "%+v", got)
}

// A lock that only --lock knows has commands that can be pasted, and is released by them.
func TestALockOfAPatternIsReleased(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "HSET", "rows^^^7", "xid", "tx:8", "pk", "7")
	flags := []string{"--lock", "rows*=owner:xid", "rows^^^7", "-u", "redis://" + addr}
	looked := locktop(t, append([]string{"inspect"}, flags...)...)
	check.Contains(t, looked.out, "--lock 'rows*=owner:xid' --write 'rows^^^7'\n")
	check.Contains(t, looked.out, "1 'rows^^^7' 2 pk 7 xid tx:8\n")
	locktop(t, append([]string{"release", "--write", "--yes"}, flags...)...).says(t, exitFine, "")
	locktop(t, append([]string{"inspect"}, flags...)...).says(t, exitNoLock, "there is no key")
}

// No waiters is said only of locks whose format shows them.
func TestTheConsequenceSaysWhetherWaitersAreKnown(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:polled", token)
	send(t, addr, "SET", "lock:queued", "web-1:31~019aa1ca-7398-7a4a-8a4a-4a4a4a4a4a4a")
	for key, want := range map[string]string{"lock:polled": "; waiters are not known; ", "lock:queued": "; no waiters; "} {
		got := locktop(t, "release", key, "--dry-run", "-u", "redis://"+addr)
		check.Contains(t, got.errors, want, "the consequence for %s", key)
	}
}

func TestReleaseOwnerNeedsPermissionAndAnOwner(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	ofOwners(t, addr, 5, "web-1.prod:4711")
	send(t, addr, "SET", "lock:endless", "web-1.prod:4711")
	for flags, c := range map[string]struct {
		code int
		said string
	}{
		"--owner web-1.prod:4711 --yes":                      {exitUsage, "web-1.prod:4711 holds 6 locks: lock:0, lock:1, lock:2, 3 more; it is not notified"},
		"--owner web-1.prod:4711 --write":                    {exitUsage, "there is no terminal for the question"},
		"--owner web-1 --write --yes":                        {exitNoLock, "web-1 has no lock"},
		"--owner web-1.prod:4711 lock:0 --write --yes":       {exitUsage, "excludes KEY"},
		"--owner web-1.prod:4711 --token x --write --yes":    {exitUsage, "excludes KEY"},
		"--owner= --write --yes":                             {exitUsage, "--owner takes the name of a holder"},
		"--owner web-2.prod:1 --give-ttl 1m --write --yes":   {exitNoLock, "web-2.prod:1 has no lock without TTL"},
		"--owner web-1.prod:4711 --match none --write --yes": {exitNoLock, "has no lock"},
	} {
		got := locktop(t, append(strings.Fields("release -u redis://"+addr), strings.Fields(flags)...)...)
		got.says(t, c.code, c.said)
		check.True(t, got.out == "", "%s prints %q", flags, got.out)
	}
	got := locktop(t, "release", "--owner", "web-1.prod:4711", "--dry-run", "-u", "redis://"+addr)
	check.True(t, got.code == exitFine && strings.Count(got.out, "EVAL") == 6, "a dry run: exit code %d, %s%s", got.code, got.out, got.errors)
	got = locktop(t, "release", "--owner", "web-1.prod:4711", "--give-ttl", "1m", "--write", "--yes", "--production", "-u", "redis://"+addr)
	check.True(t, got.code == exitFine && got.out == "set a deadline of 1 m for 1 of 1 lock of web-1.prod:4711\n",
		"a deadline: exit code %d, %q%s", got.code, got.out, got.errors)
	doc, _ := listedOn(t, "--owner", "web-1.prod:4711", "-u", "redis://"+addr)
	check.True(t, len(doc.Locks) == 6, "list --owner: %d locks", len(doc.Locks))
	doc, _ = listedOn(t, "--owner", "web-2.prod:1", "-u", "redis://"+addr)
	check.True(t, len(doc.Locks) == 1 && doc.Locks[0].Key == "lock:other", "list --owner: %+v", doc.Locks)
}

func TestOnlyTheOwnerCanReadTheAuditLog(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for range 2 { // the second run appends
		l, err := openAudit("")
		check.NoError(t, err)
		if err := l.Write(keyspace.AuditRecord{ID: "1", Action: keyspace.ForceRelease, Lock: keyspace.ID{Key: "a\x1b[2J\n"}, Outcome: keyspace.Intended}); err != nil {
			t.Fatal(err)
		}
		check.NoError(t, l.close())
		check.True(t, l.Write(keyspace.AuditRecord{}) != nil, "a log that is closed takes another line")
	}
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl")
	info := check.Must(os.Stat(path))(t)
	check.True(t, info.Mode().Perm() == 0o600, "its mode is %v", info.Mode())
	lines := audited(t)
	if len(lines) != 2 || lines[0].Key != "a\x1b[2J\n" || lines[0].Action != keyspace.ForceRelease || lines[0].Outcome != keyspace.Intended || strings.Contains(readText(t, path), "\x1b") {
		t.Errorf("written is %+v", lines)
	}
}

// The audit log names the user of the system, and not what the environment says.
func TestTheAuditNamesThePersonAndTheServers(t *testing.T) {
	t.Parallel()
	srv := servertest.RedisForTest(t, "--rename-command", "FLUSHALL", "")
	aUser(t, srv.Addr(), "ann", "on", ">pw", "~*", "&*", "+@all")
	uid := strconv.Itoa(os.Getuid())
	for _, tt := range []struct {
		env []string
		url string
		who actor
	}{
		{[]string{"USER=somebody-else", "LOGNAME=somebody-else", "SUDO_USER=bob"}, "redis://ann:pw@" + srv.Addr(), actor{SudoUser: "bob", RedisUser: "ann"}},
		{nil, "redis://" + srv.Addr(), actor{RedisUser: "default"}},
	} {
		state := t.TempDir()
		send(t, srv.Addr(), "SET", "lock:a", token, "PX", "60000")
		s := spawnIn(t, append([]string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + state}, tt.env...), "release", "lock:a", "--write", "--yes", "-u", tt.url)
		s.exits(exitFine)
		check.True(t, s.out.String() == "lock:a is released\n" && value(t, srv.Addr(), "lock:a") == "", "it says %s", s.out)
		tt.who.UID = uid
		tt.who.Host, _ = os.Hostname()
		name, err := exec.Command("id", "-un").Output()
		if err == nil {
			tt.who.User = strings.TrimSpace(string(name))
		}
		lines := auditedIn(t, filepath.Join(state, "locktop", "audit.jsonl"))
		check.Require(t, len(lines) == 2, "%d lines", len(lines))
		for i, line := range lines {
			check.True(t, line.actor == tt.who && line.Action == "release" && slices.Equal(line.Servers, []string{srv.Addr()}) &&
				line.Key == "lock:a" && line.Outcome == []keyspace.Outcome{keyspace.Intended, keyspace.Done}[i] && line.ID == lines[0].ID,
				"written is %+v, want %+v at %s", line, tt.who, srv.Addr())
		}
		check.False(t, strings.Contains(lines[0].HolderDigests[0], token), "the token was written down")
	}
}

// The outcome names the servers of a Redlock on which the lock was released, the intent those on which it was seen.
func TestTheAuditNamesTheServersOfARedlock(t *testing.T) {
	rig := servertest.IndependentForTest(t, 3)
	all, release := nodesOf(rig), append([]string{"release", "lock:a", "--write", "--yes"}, redlockFlags(rig)...)
	for _, addr := range all {
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
	}
	send(t, all[2], "ACL", "SETUSER", "default", "-eval") // it refuses the release
	ran(t, release...).says(t, exitFine)
	lines := audited(t)
	check.True(t, len(lines) == 2 && slices.Equal(lines[0].Servers, all) && slices.Equal(lines[1].Servers, all[:2]), "%+v", lines)
	for _, addr := range all[:2] {
		send(t, addr, "ACL", "SETUSER", "default", "-eval")
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
	}
	ran(t, release...).says(t, exitFailure, `release "lock:a" at `+all[0])
	lines = audited(t)
	check.True(t, len(lines[1].Servers) == 0 && lines[1].Outcome == keyspace.Failed, "%+v", lines)
}

// The log is where --audit-log or the context says: in a file, or at a syslog daemon.
func TestTheAuditLogIsWhereTheUserSays(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	home := socketDir(t)
	socket := filepath.Join(home, "log")
	daemon := check.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
	defer daemon.Close()
	file := filepath.Join(home, "central.jsonl")
	configure(t, 0o600, "contexts:", "  prod:", "    url: redis://"+addr, "    audit_log: "+file)
	release := func(args ...string) outcome {
		send(t, addr, "SET", "lock:a", token, "PX", "60000")
		got := ran(t, append([]string{"release", "lock:a", "--write", "--yes"}, args...)...)
		own := audited(t)
		check.True(t, own == nil, "%q writes to the log of the user, too: %+v", args, own)
		return got
	}
	for _, args := range [][]string{{"--context", "prod"}, {"--context", "prod", "--audit-log", "syslog:" + socket}} {
		release(args...).says(t, exitFine)
		check.True(t, len(auditedIn(t, file)) == 2, "%q: %+v", args, auditedIn(t, file))
	}
	for _, want := range []keyspace.Outcome{keyspace.Intended, keyspace.Done} {
		packet := make([]byte, 64<<10)
		check.NoError(t, daemon.SetReadDeadline(time.Now().Add(longestWait)))
		n := check.Must(daemon.Read(packet))(t)
		head, text, _ := strings.Cut(string(packet[:n]), "]: ")
		const priority = "<85>" // authpriv.notice
		if decoded[auditLine](t, text).Outcome != want || !strings.HasPrefix(head, priority) || !strings.Contains(head, "locktop[") {
			t.Errorf("got %q, want %s", packet[:n], want)
		}
	}
	check.NoError(t, errors.Join(daemon.Close(), os.RemoveAll(socket)))
	release("--audit-log", "syslog:"+socket, "-u", "redis://"+addr).fails(t, exitFailure, "nothing was changed")
	check.True(t, value(t, addr, "lock:a") == token, "it was released without a daemon")
}

// taker acquires a lock again and again, each time with another token, and
// returns the tokens that other clients removed, as digests.
func taker(ctx context.Context, rdb server.Client, key string) (robbed map[string]bool, err error) {
	robbed = make(map[string]bool)
	for n := 0; ctx.Err() == nil; n++ {
		token := fmt.Sprintf("5f0c9a4e-2d3b-4c8a-9e1f-%012x", rand.Uint64N(1<<48))
		if err := rdb.SetArgs(context.Background(), key, token, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err(); err != nil {
			return nil, fmt.Errorf("a lock that nobody else takes is taken: %w", err)
		}
		time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
		mine, err := freeIfMine.Run(context.Background(), rdb, []string{key}, token).Int()
		if err != nil {
			return nil, err
		}
		if mine == 0 {
			sum := sha256.Sum256([]byte(token))
			robbed[hex.EncodeToString(sum[:8])] = true
		}
	}
	return robbed, nil
}

// Many release commands race with clients that constantly acquire their locks
// again. A release removes only the hold that it saw.
//
// Promise P11.
func TestNoLockIsBrokenThatWasNotSeen(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	clients := testtier.Size(6, 12, 200)
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientWith(t, addr, server.ClientOptions{PoolSize: 50})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	robbed := make([]map[string]bool, clients)
	var takers, releasers sync.WaitGroup
	for i := range clients {
		takers.Go(func() {
			var err error
			robbed[i], err = taker(ctx, rdb, fmt.Sprintf("lock:%d", i))
			check.ErrorIs(t, err, nil)
		})
	}
	ends := make(chan int, clients)
	room := make(chan struct{}, 8) // processes at the same time
	for i := range clients {
		releasers.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			err := exec.Command("locktop", "release", fmt.Sprintf("lock:%d", i), "--write", "--yes", "-u", "redis://"+addr).Run()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Error(err)
			}
			ends <- code
		})
	}
	releasers.Wait()
	stop()
	takers.Wait()
	compareRobbed(t, robbed, ends)
}

// compareRobbed checks that the holds that were removed are those in the audit log.
func compareRobbed(t *testing.T, robbed []map[string]bool, ends chan int) {
	t.Helper()
	close(ends)
	codes := make(map[int]int)
	for code := range ends {
		codes[code]++
	}
	lost, foreign := 0, 0
	for _, one := range robbed {
		lost += len(one)
	}
	intents, done := 0, 0
	for _, line := range audited(t) {
		if line.Outcome == "intended" {
			intents++
		}
		if line.Outcome != "done" {
			continue
		}
		done++
		var i int
		check.Must(fmt.Sscanf(line.Key, "lock:%d", &i))(t)
		if _, digest, _ := strings.Cut(line.HolderDigests[0], "sha256:"); !robbed[i][digest] {
			foreign++
		}
	}
	t.Logf("%d intents, %d done, %d holds taken away, exit codes %v", intents, done, lost, codes)
	check.True(t, foreign <= 0 && lost == done && done == codes[exitFine],
		"%d holds were taken away, %d were to be, %d of these never had been", lost, done, foreign)
	other := len(robbed) - codes[exitFine] - codes[exitChanged] - codes[exitNoLock]
	check.True(t, other == 0, "%d ended in another way: %v", other, codes)
}
