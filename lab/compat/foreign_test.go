package compat

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// requirePeers is the environment variable that makes tests fail instead of
// skip if node, Python or one of their packages is missing.
const requirePeers = "LOCKTOP_REQUIRE_PEERS"

// foreign is a library of another language: a program that acquires a lock,
// prints "held", and releases the lock when its input ends.
type foreign struct {
	name    string
	command func(t *testing.T, port string) *exec.Cmd
	key     string // the key under which the lock must be found
	format  string
	kind    keyspace.Kind
	sure    keyspace.Confidence
	label   string
	ttl     time.Duration // 0 = never expires
	since   bool          // the token contains the start of the hold
}

func foreigners() []foreign {
	const name = "lock:inventory:sku-9"
	return []foreign{
		{name: "redlock 4 of npm", command: node("redlock4", name), key: name, format: "node-redlock", kind: keyspace.Mutex, sure: keyspace.Likely, ttl: ttl},
		{name: "redlock 5 of npm", command: node("redlock5", name), key: name, format: "node-redlock", kind: keyspace.Mutex, sure: keyspace.Likely, ttl: ttl},
		{name: "redis-semaphore's mutex", command: node("mutex", "sku-9"), key: "mutex:sku-9", format: "redis-semaphore-mutex",
			kind: keyspace.Mutex, sure: keyspace.Likely, label: "worker-3", ttl: ttl},
		{name: "redis-semaphore", command: node("semaphore", "sku-9"), key: "semaphore:sku-9", format: "redis-semaphore",
			kind: keyspace.Semaphore, sure: keyspace.Likely, ttl: ttl},
		{name: "bullmq", command: node("bullmq", "mail"), key: "bull:mail:1:lock", format: "bullmq", kind: keyspace.Mutex, sure: keyspace.Certain, ttl: 30 * time.Second},
		{name: "redis-py", command: python("nightly", "60"), key: "nightly", format: "redis-py", kind: keyspace.Mutex, sure: keyspace.Likely, ttl: ttl, since: true},
		{name: "redis-py without a timeout", command: python("lock:nightly"), key: "lock:nightly", format: "redis-py",
			kind: keyspace.Mutex, sure: keyspace.Likely, since: true},
	}
}

// node runs a holder of node/hold.js.
func node(library, key string) func(*testing.T, string) *exec.Cmd {
	return func(t *testing.T, port string) *exec.Cmd {
		t.Helper()
		_, err := os.Stat("node/node_modules")
		if program, missing := exec.LookPath("node"); missing == nil && err == nil {
			return exec.CommandContext(t.Context(), program, "node/hold.js", library, port, key)
		}
		lacks(t, "node and its libraries are missing: install node, then run npm ci --omit=optional --prefix lab/compat/node")
		return nil
	}
}

// python runs python/hold.py with a Python that has the package redis.
func python(args ...string) func(*testing.T, string) *exec.Cmd {
	return func(t *testing.T, port string) *exec.Cmd {
		t.Helper()
		for _, program := range []string{"python3", "/usr/bin/python3"} {
			if exec.CommandContext(t.Context(), program, "-c", "import redis").Run() == nil {
				return exec.CommandContext(t.Context(), program, append([]string{"python/hold.py", port}, args...)...)
			}
		}
		lacks(t, "redis-py is missing: install python3-redis")
		return nil
	}
}

// lacks skips the test, or fails it if requirePeers is set.
func lacks(t *testing.T, what string) {
	t.Helper()
	check.Require(t, os.Getenv(requirePeers) == "", "%v", what)
	t.Skip(what + "; with " + requirePeers + "=1 this fails")
}

func TestLocksOfOtherLanguagesAreNamed(t *testing.T) {
	for _, f := range foreigners() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			addr := servertest.RedisForTest(t).Addr()
			if f.name == "bullmq" {
				needs62(t, addr)
			}
			_, port, err := net.SplitHostPort(addr)
			check.NoError(t, err)
			began := time.Now()
			release := f.hold(t, port)
			scanner := inspect.NewScanner(connect(t, addr), inspect.ScanOptions{Formats: formats.All()})
			found, err := scanner.Scan(t.Context())
			check.NoError(t, err)
			check.Require(t, len(found.Locks) == 1, "the scanner found %d locks, want 1: %+v", len(found.Locks), found.Locks)
			f.check(t, *found.Locks[0], found.At, began)
			release()
			if found, err = scanner.Scan(t.Context()); err != nil || len(found.Locks) != 0 {
				t.Errorf("after the release the scanner found %+v, %v", found.Locks, err)
			}
		})
	}
}

// redis-py makes its token before it waits for the lock.
func TestTheTimeInATokenIsTheEarliestBeginOfAHold(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	_, port, err := net.SplitHostPort(addr)
	check.NoError(t, err)
	rdb := connect(t, addr)
	check.NoError(t, rdb.Set(t.Context(), "nightly", "another", 0).Err())
	time.AfterFunc(2*time.Second, func() { rdb.Del(context.Background(), "nightly") })
	defer foreign{name: "redis-py", command: python("nightly", "60")}.hold(t, port)()
	held := time.Now()
	found, err := inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()}).Scan(t.Context())
	check.Require(t, err == nil && len(found.Locks) == 1, "%v, %+v", err, found.Locks)
	h := found.Locks[0].Holders[0]
	asked := h.Since.Add(-h.Late)
	check.True(t, h.Late > time.Second && asked.Before(held.Add(-time.Second)) && held.Sub(h.Since) < 2*time.Second, "it held the lock at %v; found %+v", held, h)
	check.Equal(t, found.Locks[0].Age(found.At).Wide(), true, "the bounds of its age are wide")
}

// hold acquires the lock and returns a function that releases it.
func (f foreign) hold(t *testing.T, port string) (release func()) {
	t.Helper()
	cmd := f.command(t, port)
	cmd.Stderr = os.Stderr
	in := check.Must(cmd.StdinPipe())(t)
	out := check.Must(cmd.StdoutPipe())(t)
	check.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	check.Require(t, (err == nil || err == io.EOF) && line == "held\n", "%s says %q, %v", f.name, line, err)
	return func() {
		check.ErrorIs(t, in.Close(), nil)
		check.ErrorIs(t, cmd.Wait(), nil, "%s", f.name)
	}
}

func (f foreign) check(t *testing.T, l keyspace.Lock, now, began time.Time) {
	t.Helper()
	if l.Key != f.key || l.Format != f.format || l.Kind != f.kind || l.Confidence != f.sure {
		t.Errorf("the scanner found %q: a %s of %s, %v; want %q: a %s of %s, %v",
			l.Key, l.Kind, l.Format, l.Confidence, f.key, f.kind, f.format, f.sure)
	}
	check.Require(t, len(l.Holders) == 1 && l.Holders[0].Label == f.label && l.Holders[0].ID != "",
		"its holders are %+v; want one, called %q", l.Holders, f.label)
	left, expires := l.TTL(now)
	check.True(t, expires == (f.ttl > 0) && (!expires || left > 0 && left <= f.ttl), "its TTL is %v, %v; want up to %v", left, expires, f.ttl)
	since := l.Holders[0].Since
	check.True(t, f.since == !since.IsZero() && (!f.since || !since.Before(began.Add(-time.Second)) && !since.After(now.Add(time.Second))),
		"it is held since %v; it was taken between %v and %v", since, began, now)
}
