package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// Redis 8.0.2 and Valkey 8.1.1 crash when a connection with CLIENT NO-TOUCH
// causes them to serve a blocked client. The test runs every way to read and to
// change a lock, for every format, with clients blocked on each key that a
// release touches: once, or 100 times with LOCKTOP_PROOF=1.
func TestNothingDoneToALockWithBlockedWaitersEndsTheServer(t *testing.T) {
	testtier.Long(t, "every command of locktop meets blocked waiters")
	t.Parallel()
	child := server.ForTest(t)
	rdb := clientWith(t, redis.Options{Addr: child.Addr(), MaxRetries: -1})
	rounds, tried := testtier.Size(1, 1, 100), 0
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
	check.True(t, tried >= 70, "only %d formats were tried", tried)
}

// actWithBlockedWaiters reads a sample of a format and releases it, while
// clients are blocked on every key that the release touches.
func actWithBlockedWaiters(t *testing.T, child *server.Child, rdb *redis.Client, f keyspace.Format, s keyspace.Sample) {
	t.Helper()
	ctx, pid := t.Context(), child.PID()
	check.NoError(t, rdb.FlushAll(ctx).Err())
	s = formats.At(s, rdb.Time(ctx).Val())
	for _, command := range s.Commands {
		issue(t, rdb, command)
	}
	defer blockOn(t, rdb, f.Actions.Keys(s.Want))()
	where := []string{"-u", "redis://" + child.Addr(), "--timeout", "20s"}
	for _, args := range [][]string{
		{"list"}, {"inspect", s.Want.Key}, {"watch", "--for", "20ms"},
		{"release", s.Want.Key, "--dry-run"}, {"release", s.Want.Key, "--write", "--yes"},
	} {
		got := locktop(t, append(args, where...)...)
		check.True(t, got.code == exitFine, "%s: %v ends with %d: %s", f.Name, args, got.code, got.errors)
	}
	err := rdb.Ping(ctx).Err()
	check.Require(t, err == nil && child.PID() == pid, "%s: the server is process %d, was %d: %v", f.Name, child.PID(), pid, err)
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
	typ := check.Must(rdb.Type(t.Context(), key).Result())(t)
	return typ == "none" || typ == "stream" && command == "xread"
}

// The question before an extend names a deadline, and the server then has it. No extend moves
// a deadline towards now: the permits of a semaphore end together, after the last of them.
func TestTheDeadlineThatAnExtendNamesIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	const first, last = "\x8a\x1f\xc7\x00\x9b\xe2\x13\xf4\xd0\x81\x07\xee\x5c\xb9\xa4\x21", "\x31\xa9\xfe\x12\x88\xc0\x6d\x9e\x02\xd7\x4b\xff\x95\x10\xe3\x7a"
	named := regexp.MustCompile(`→ .*\(in ([0-9]+ [hd] [0-9]+(?: h)?)\)`)
	now := time.Now()
	for _, c := range []struct {
		key      string
		commands [][]any
		deadline func(*redis.Client) time.Time
		left     string // after: as long again
	}{
		{"job:report-lock", [][]any{{"SET", "job:report-lock", "worker-3:991", "PX", 7_190_000}}, func(rdb *redis.Client) time.Time {
			return time.Now().Add(rdb.PTTL(t.Context(), "job:report-lock").Val())
		}, "3 h 59"},
		{"{gpu}:timeout", [][]any{{"SET", "gpu", "0"}, {"ZADD", "{gpu}:timeout", now.Add(7 * time.Hour).UnixMilli(), first, now.Add(14 * time.Hour).UnixMilli(), last}}, func(rdb *redis.Client) time.Time {
			return time.UnixMilli(int64(rdb.ZScore(t.Context(), "{gpu}:timeout", first).Val()))
		}, "1 d 3 h"},
	} {
		child := server.ForTest(t)
		rdb := clientTo(t, child.Addr())
		for _, command := range c.commands {
			check.NoError(t, rdb.Do(t.Context(), command...).Err())
		}
		term := openTerminal(t, 140, 40, "--url", "redis://"+child.Addr(), "--write")
		term.want(c.key, "h").press("x").press("e").want("extend " + c.key + "?")
		question := term.screen()
		term.press("y").want("extended " + c.key)
		left := named.FindStringSubmatch(question)
		check.True(t, left != nil && left[1] == c.left, "named is %q, want %s\n%s", left, c.left, question)
		at := c.deadline(rdb).Local().Truncate(time.Second)
		check.True(t, slices.ContainsFunc([]time.Duration{-time.Second, 0, time.Second}, func(d time.Duration) bool {
			return strings.Contains(question, "→ "+at.Add(d).Format("15:04:05")) || strings.Contains(question, "→ "+at.Add(d).Format("2006-01-02 15:04:05"))
		}), "%s ends at %v, which is not named\n%s", c.key, at, question)
		term.quit()
	}
}
