package formats_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// watched is a watch of a server, with its events so far.
type watched struct {
	*inspect.Watcher
	events []keyspace.Event
}

// follow watches the locks of a scanner until the test ends.
func follow(t *testing.T, s *inspect.Scanner) *watched {
	w := &watched{Watcher: inspect.NewWatcher(s)}
	t.Cleanup(w.Close)
	return w
}

// watch watches the locks of a server that reports its changes.
func watch(t *testing.T, rdb server.Client) *watched {
	t.Helper()
	w := follow(t, inspect.NewScanner(rdb, inspect.ScanOptions{Formats: everyFormat}))
	w.await(t, func() bool { return w.Known().Complete && w.Known().Watch.Mode == keyspace.Push })
	return w
}

// await takes events until so is true.
func (w *watched) await(t *testing.T, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !so() {
		events, _, err := w.Next(ctx)
		check.NoError(t, err, "after %v", w.events)
		w.events = append(w.events, events...)
	}
}

// next takes events until one is of interest, and returns it.
func (w *watched) next(t *testing.T, of func(keyspace.Event) bool) keyspace.Event {
	t.Helper()
	at, from := -1, len(w.events)
	w.await(t, func() bool { at = slices.IndexFunc(w.events[from:], of); return at >= 0 })
	return w.events[from+at]
}

// The release of a Redisson fair lock is announced to the first waiter in its
// queue, and not at all if the queue is empty. The watch knows that also from a message that
// comes after the watch has read that the lock is free.
func TestAFairLockWithoutWaitersIsReleasedWithoutAMessage(t *testing.T) {
	testtier.Long(t, "it waits for messages")
	t.Parallel()
	t.Run("message with the end", func(t *testing.T) { t.Parallel(); fairReleases(t, false) })
	t.Run("message after the end", func(t *testing.T) { t.Parallel(); fairReleases(t, true) })
}

// A message does not name its database. While a client holds the lock, it is that of another one, and tells nothing
// about the releases of this lock.
func TestAMessageWhileALockIsHeldTeachesNothing(t *testing.T) {
	testtier.Long(t, "it waits for messages")
	t.Parallel()
	const (
		holder, one, another = "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7", "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"
		queue                = "redisson_lock_queue:{gate}"
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	load(t, rdb, []string{"HSET", "gate", holder, "1"}, []string{"PEXPIRE", "gate", "60000"}, []string{"RPUSH", queue, one})
	w := watch(t, rdb)
	load(t, rdb, []string{"PUBLISH", "redisson_lock__channel:{gate}:" + one, "0"}, []string{"RPUSH", queue, another})
	w.next(t, func(e keyspace.Event) bool { return e.Kind == keyspace.WaiterJoined })
	load(t, rdb, []string{"DEL", "gate"})
	e := w.next(t, func(e keyspace.Event) bool { return e.Kind.Ends() })
	check.True(t, e.Kind != keyspace.Deleted, "the event is %s: the message was taken for one of this lock", e.Kind)
}

// fairReleases tests the releases of a fair lock. If late is true, the first message is published after the end was read.
func fairReleases(t *testing.T, late bool) {
	const (
		key, queue, deadlines = "gate", "redisson_lock_queue:{gate}", "redisson_lock_timeout:{gate}"
		first, second         = "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"
		acquire               = "redis.call('DEL', KEYS[2], KEYS[3]) redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], 30000)"
		enqueue               = "redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])"
		release               = "redis.call('DEL', KEYS[1]) local next = redis.call('LINDEX', KEYS[2], 0) if next then redis.call('PUBLISH', 'redisson_lock__channel:{gate}:' .. next, '0') end return 1"
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	run := func(script string, argv ...any) {
		t.Helper()
		check.NoError(t, rdb.Eval(t.Context(), script, []string{key, queue, deadlines}, argv...).Err())
	}
	load(t, rdb, []string{"HSET", "standing", first, "1"}, []string{"RPUSH", "redisson_lock_queue:{standing}", second})
	w := watch(t, rdb)
	wantEvent := func(kind keyspace.EventKind) {
		t.Helper()
		e := w.next(t, func(e keyspace.Event) bool { return e.Lock.Key == key && (e.Kind == kind || e.Kind.Ends()) })
		check.Equal(t, e.Kind, kind, "the event is")
	}
	later := clock(t, rdb).Add(time.Minute).UnixMilli()

	run(acquire, first)
	wantEvent(keyspace.Acquired)
	run(enqueue, second, later)
	wantEvent(keyspace.WaiterJoined)
	if late {
		load(t, rdb, []string{"DEL", key})
		wantEvent(keyspace.Released)
		load(t, rdb, []string{"PUBLISH", "redisson_lock__channel:{gate}:" + second, "0"})
	} else {
		run(release)
		wantEvent(keyspace.Released)
	}

	run(acquire, second)
	wantEvent(keyspace.Acquired)
	run(release)
	wantEvent(keyspace.Released)

	// With a waiter in the queue, a missing message means that the lock was not
	// released by Redisson.
	run(acquire, first)
	wantEvent(keyspace.Acquired)
	run(enqueue, second, later)
	wantEvent(keyspace.WaiterJoined)
	load(t, rdb, []string{"DEL", key})
	wantEvent(keyspace.Deleted)
}

// A fair lock is one lock, whether it is held or free: the queue stands in for it while no
// client holds it. If the first waiter is dead, the next one sleeps until a message reaches it.
func TestAFreeFairLockKeepsItsNameAndSaysWhomToWake(t *testing.T) {
	t.Parallel()
	const (
		key, queue, deadlines = "gate", "redisson_lock_queue:{gate}", "redisson_lock_timeout:{gate}"
		holder, dead, alive   = "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7", "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	now := clock(t, rdb)
	passed, later := strconv.FormatInt(now.Add(-20*time.Second).UnixMilli(), 10), strconv.FormatInt(now.Add(time.Minute).UnixMilli(), 10)
	load(t, rdb,
		[]string{"HSET", key, holder, "1"}, []string{"PEXPIRE", key, "60000"},
		[]string{"RPUSH", queue, dead, alive}, []string{"ZADD", deadlines, passed, dead, later, alive})
	w := watch(t, rdb)
	await := func(state keyspace.State) (lock keyspace.Lock) {
		t.Helper()
		w.await(t, func() bool {
			for _, l := range w.Known().Locks {
				check.Require(t, l.Key == key, "a second lock %q", l.Key)
				lock = *l
			}
			return lock.Key == key && lock.State(w.Known().At) == state
		})
		return lock
	}
	happened := func(kind keyspace.EventKind) bool {
		return slices.ContainsFunc(w.events, func(e keyspace.Event) bool { return e.Kind == kind })
	}
	await(keyspace.Held)

	ctx, scanner := t.Context(), inspect.NewScanner(rdb, inspect.ScanOptions{Formats: everyFormat})
	waker := servertest.Subscribe(ctx, rdb, "redisson_lock__channel:{gate}:"+alive)
	defer waker.Close()
	check.Must(waker.Receive(ctx))(t)
	load(t, rdb, []string{"DEL", key}, []string{"PUBLISH", "redisson_lock__channel:{gate}:" + dead, "0"})
	free := await(keyspace.Waiting)
	at := w.Known().At
	check.True(t, happened(keyspace.Released), "no release in %v", w.events)
	findings := keyspace.Findings(w.Known())
	check.True(t, slices.ContainsFunc(findings, func(f keyspace.Finding) bool { return f.ID == "zombie-head" && f.Lock.Key == key }), "findings: %+v", findings)
	check.True(t, free.Waiters[0].DeadFor(at) >= 20*time.Second && free.Waiters[1].DeadFor(at) == 0, "waiters %+v at %s", free.Waiters, at)
	for _, name := range []string{key, queue} {
		read, err := scanner.ReadKey(ctx, name)
		check.True(t, err == nil && len(read.Locks) == 1 && read.Locks[0].Key == key && len(read.Entries) == 2,
			"%s: %+v, %v", name, read, err)
	}
	l, err := scanner.ReadLock(ctx, key)
	check.True(t, err == nil && l != nil && len(l.Waiters) == 2, "%+v, %v", l, err)

	host, port, _ := net.SplitHostPort(free.Node)
	words := strings.Fields(strings.ReplaceAll(keyspace.WakeCommand(everyFormat, free, at), "'", ""))
	want := []string{"redis-cli", "-h", host, "-p", port, "PUBLISH", "redisson_lock__channel:{gate}:" + alive, "0"}
	check.Require(t, slices.Equal(words, want), "%q, want %q", words, want)
	load(t, rdb, words[5:])
	msg := check.Must(waker.ReceiveMessage(ctx))(t)
	check.Equal(t, msg.Payload, "0", "the message is")

	load(t, rdb, []string{"DEL", queue, deadlines}, []string{"HSET", key, alive, "1"}, []string{"PEXPIRE", key, "30000"})
	held := await(keyspace.Held)
	check.Equal(t, held.SoleHolder(), alive, "it is held by")
	check.True(t, happened(keyspace.Acquired), "no acquire in %v", w.events)
}

// Most locks have no queue and no fence. A scan asks one question about all related keys of a lock, and reads those that
// exist. Without the permission for the question it reads them one by one.
func TestAScanAsksOnceForTheRelatedKeysOfALock(t *testing.T) {
	t.Parallel()
	const locks, holder, waiter = 300, "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	var fill [][]string
	for i := range locks {
		key := fmt.Sprint("order:", i)
		fill = append(fill, []string{"HSET", key, holder, "1"}, []string{"PEXPIRE", key, "60000"})
	}
	later := strconv.FormatInt(clock(t, rdb).Add(time.Minute).UnixMilli(), 10)
	load(t, rdb, append(fill, []string{"RPUSH", "redisson_lock_queue:{order:7}", waiter}, []string{"ZADD", "redisson_lock_timeout:{order:7}", later, waiter})...)
	check.NoError(t, servertest.SetUser(t.Context(), rdb, "reader", "reset", "on", ">secret", "~*", "+@all", "-exists"))
	reader := server.NewClient(servertest.AddrOf(rdb), server.ClientOptions{Username: "reader", Password: "secret"})
	t.Cleanup(func() { reader.Close() })
	for _, c := range []struct {
		rdb  server.Client
		most int // reads of the length of a queue
	}{{rdb, 64}, {reader, 2 * locks}} {
		check.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		found := scan(t, c.rdb)
		calls := 0
		for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
			_, _ = fmt.Sscanf(line, "cmdstat_llen:calls=%d,", &calls)
		}
		at := slices.IndexFunc(found.Locks, func(l *keyspace.Lock) bool { return l.Key == "order:7" })
		check.True(t, len(found.Locks) == locks && at >= 0 && len(found.Locks[at].Waiters) == 1 && calls <= c.most,
			"%d locks, %d reads of a queue's length", len(found.Locks), calls)
	}
}
