package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/server"
)

// proofRounds returns how often a proof is repeated: once in a normal run, n
// times if LOCKTOP_PROOF is set.
func proofRounds(n int) int {
	if os.Getenv("LOCKTOP_PROOF") != "" {
		return n
	}
	return 1
}

// Redis 8.0.2 and Valkey 8.1.1 crash when a connection with CLIENT NO-TOUCH
// causes them to serve a blocked client. The test runs every way to read and to
// change a lock, for every format, with clients blocked on each key that a
// release touches: once, or 100 times with LOCKTOP_PROOF=1.
func TestNothingDoneToALockWithBlockedWaitersEndsTheServer(t *testing.T) {
	t.Parallel()
	child := server.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	rounds, tried := proofRounds(100), 0
	for _, f := range formats.All() {
		i := slices.IndexFunc(f.Samples, func(s keyspace.Sample) bool {
			return len(s.Want.Holders) > 0 && s.Want.Confidence != keyspace.Possible
		})
		if f.Actions == nil || i < 0 {
			continue
		}
		tried++
		for range rounds {
			actWithBlockedWaiters(t, child, rdb, f, f.Samples[i])
		}
	}
	t.Logf("%d rounds of %d formats", rounds, tried)
	if tried < 70 {
		t.Errorf("only %d formats were tried", tried)
	}
}

// actWithBlockedWaiters reads a sample of a format and releases it, while
// clients are blocked on every key that the release touches.
func actWithBlockedWaiters(t *testing.T, child *server.Child, rdb *redis.Client, f keyspace.Format, s keyspace.Sample) {
	t.Helper()
	ctx, pid := t.Context(), child.PID()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s = formats.At(s, rdb.Time(ctx).Val())
	for _, command := range s.Commands {
		argv := make([]any, len(command))
		for i, word := range command {
			argv[i] = word
		}
		if err := rdb.Do(ctx, argv...).Err(); err != nil {
			t.Fatalf("%s: %v: %v", f.Name, command, err)
		}
	}
	defer blockOn(t, rdb, f.Actions.Keys(s.Want))()
	where := []string{"-u", "redis://" + child.Addr(), "--timeout", "20s"}
	for _, args := range [][]string{
		{"list"}, {"inspect", s.Want.Key}, {"watch", "--for", "20ms"},
		{"release", s.Want.Key, "--dry-run"}, {"release", s.Want.Key, "--write", "--yes"},
	} {
		if got := locktop(t, append(args, where...)...); got.code != exitFine {
			t.Errorf("%s: %v ends with %d: %s", f.Name, args, got.code, got.errors)
		}
	}
	if err := rdb.Ping(ctx).Err(); err != nil || child.PID() != pid {
		t.Fatalf("%s: the server is process %d, was %d: %v", f.Name, child.PID(), pid, err)
	}
}

// blockOn blocks clients on each of these keys, as a list, a sorted set and a
// stream. No client blocks on a key of another type. It returns when the server
// reports that they are blocked; end disconnects them.
func blockOn(t *testing.T, rdb *redis.Client, keys []string) (end func()) {
	t.Helper()
	waiters := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, DisableIdentity: true, MaxRetries: -1, ReadTimeout: -1, PoolSize: 10 * len(keys)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	blocked := 0
	for _, key := range keys {
		for _, argv := range [][]any{{"blpop", key, 0}, {"bzpopmin", key, 0}, {"xread", "block", 0, "streams", key, "$"}} {
			if !blocks(t, rdb, argv[0].(string), key) {
				continue
			}
			blocked++
			running.Go(func() { _ = waiters.Do(ctx, argv...).Err() }) // it ends when it is served or disconnected
		}
	}
	eventually(t, func() bool {
		got := rdb.InfoMap(ctx, "clients").Item("Clients", "blocked_clients")
		return got == fmt.Sprint(blocked)
	})
	return func() {
		cancel()
		waiters.Close()
		running.Wait()
		if !t.Failed() {
			eventually(t, func() bool { return rdb.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients") == "0" })
		}
	}
}

// blocks reports whether a command blocks on a key, which means that the key
// does not exist or is a stream without new entries.
func blocks(t *testing.T, rdb *redis.Client, command, key string) bool {
	t.Helper()
	typ, err := rdb.Type(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return typ == "none" || typ == "stream" && command == "xread"
}
