package formats_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/server"
)

// The release of a Redisson fair lock is announced to the first waiter in its
// queue, and not at all if the queue is empty.
func TestAFairLockWithoutWaitersIsReleasedWithoutAMessage(t *testing.T) {
	const (
		key, queue, deadlines = "gate", "redisson_lock_queue:{gate}", "redisson_lock_timeout:{gate}"
		first, second         = "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"
		acquire               = "redis.call('DEL', KEYS[2], KEYS[3]) redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], 30000)"
		enqueue               = "redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])"
		release               = "redis.call('DEL', KEYS[1]) local next = redis.call('LINDEX', KEYS[2], 0) if next then redis.call('PUBLISH', 'redisson_lock__channel:{gate}:' .. next, '0') end return 1"
	)
	rdb := connect(t, server.ForTest(t).Addr())
	run := func(script string, argv ...any) {
		t.Helper()
		if err := rdb.Eval(t.Context(), script, []string{key, queue, deadlines}, argv...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	load(t, rdb, []string{"HSET", "standing", first, "1"}, []string{"RPUSH", "redisson_lock_queue:{standing}", second})
	f := inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()}))
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen []keyspace.EventKind
	await := func(what string, so func() bool) {
		t.Helper()
		for !so() {
			events, _, err := f.Next(ctx)
			if err != nil {
				t.Fatalf("waiting for %s, after %q: %v", what, seen, err)
			}
			for _, e := range events {
				if e.Lock.Key == key {
					seen = append(seen, e.Kind)
				}
			}
		}
	}
	wantEvent := func(kind keyspace.EventKind) {
		t.Helper()
		seen = nil
		await(string(kind), func() bool {
			return slices.ContainsFunc(seen, func(k keyspace.EventKind) bool { return k == kind || k.Ends() })
		})
		if !slices.Contains(seen, kind) {
			t.Errorf("the event is %q, want %s", seen, kind)
		}
	}
	await("push", func() bool { return f.Known().Complete && f.Known().Watch.Mode == keyspace.Push })
	later := clock(t, rdb).Add(time.Minute).UnixMilli()

	run(acquire, first)
	wantEvent(keyspace.Acquired)
	run(enqueue, second, later)
	wantEvent(keyspace.WaiterJoined)
	run(release)
	wantEvent(keyspace.Released)

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
