package proofs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/lab/internal/labtest"
)

// Redis 8.0.2 and Valkey 8.1.1 crash when a connection with CLIENT NO-TOUCH causes them to serve a blocked client. The
// test runs every way to read and to change a lock, for every format, with clients blocked on each key that a release
// touches: once, or 100 times with LOCKTOP_PROOF=1.
func TestNothingDoneToALockWithBlockedWaitersEndsTheServer(t *testing.T) {
	testtier.Long(t, "every command of locktop meets blocked waiters")
	t.Parallel()
	child := servertest.RedisForTest(t)
	rdb := labtest.Client(t, child.Addr(), server.ClientOptions{NoRetry: true})
	rounds, tried := testtier.Size(1, 1, 100), 0
	for _, f := range formats.All() {
		i := slices.IndexFunc(formats.Samples(f.Name), func(s keyspace.Sample) bool {
			return len(s.Want.Holders) > 0 && s.Want.Confidence != keyspace.Possible
		})
		if f.Actions == nil || i < 0 {
			continue
		}
		tried++
		for range rounds {
			actWithBlockedWaiters(t, child, rdb, f, formats.Samples(f.Name)[i])
		}
	}
	t.Logf("%d rounds of %d formats", rounds, tried)
	check.True(t, tried >= 70, "only %d formats were tried", tried)
}

// actWithBlockedWaiters reads a sample of a format and releases it, while
// clients are blocked on every key that the release touches.
func actWithBlockedWaiters(t *testing.T, child *server.Child, rdb server.Client, f keyspace.Format, s keyspace.Sample) {
	t.Helper()
	ctx, pid := t.Context(), child.PID()
	check.NoError(t, rdb.FlushAll(ctx).Err())
	s = formats.At(s, rdb.Time(ctx).Val())
	for _, words := range s.Commands {
		var argv []any
		for _, word := range words {
			argv = append(argv, word)
		}
		err := rdb.Do(ctx, argv...).Err()
		check.Require(t, err == nil || err == redis.Nil, "%q: %v", words, err)
	}
	defer blockOn(t, rdb, f.Actions.Keys(s.Want))()
	where := []string{"-u", "redis://" + child.Addr(), "--timeout", "20s"}
	for _, args := range [][]string{
		{"list"}, {"inspect", s.Want.Key}, {"watch", "--for", "20ms"},
		{"release", s.Want.Key, "--dry-run"}, {"release", s.Want.Key, "--write", "--yes"},
	} {
		got := labtest.Locktop(t, append(args, where...)...)
		check.True(t, got.Code == 0, "%s: %v ends with %d: %s", f.Name, args, got.Code, got.Errors)
	}
	err := rdb.Ping(ctx).Err()
	check.Require(t, err == nil && child.PID() == pid, "%s: the server is process %d, was %d: %v", f.Name, child.PID(), pid, err)
}

// blockOn blocks clients on each of these keys, as a list, a sorted set and a stream. No client blocks on a key of
// another type. It returns when the server reports that they are blocked; end disconnects them.
func blockOn(t *testing.T, rdb server.Client, keys []string) (end func()) {
	t.Helper()
	waiters := server.NewClient(servertest.AddrOf(rdb), server.ClientOptions{NoRetry: true, Timeout: time.Hour, PoolSize: 10 * len(keys)})
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
	awaitBlocked(t, rdb, blocked)
	return func() {
		cancel()
		waiters.Close()
		running.Wait()
		if !t.Failed() {
			awaitBlocked(t, rdb, 0)
		}
	}
}

// awaitBlocked waits until a server reports that n clients are blocked.
func awaitBlocked(t *testing.T, rdb server.Client, n int) {
	t.Helper()
	labtest.Within(t, labtest.LongestWait, func() bool {
		return rdb.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients") == fmt.Sprint(n)
	})
}

// blocks reports whether a command blocks on a key, which means that the key
// does not exist or is a stream without new entries.
func blocks(t *testing.T, rdb server.Client, command, key string) bool {
	t.Helper()
	typ := check.Must(rdb.Type(t.Context(), key).Result())(t)
	return typ == "none" || typ == "stream" && command == "xread"
}
