package formats_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// A watcher knows a large value from its scan, and a small one that becomes large. It reads
// the elements of neither, however often they change.
func TestAWatcherNeverReadsTheElementsOfAnOversizedValue(t *testing.T) {
	t.Parallel()
	element, changes := 100_000, 5
	if os.Getenv("LOCKTOP_PROOF") != "" {
		element, changes = 8_000_000, 50
	}
	for _, tracking := range []bool{true, false} {
		t.Run(fmt.Sprint("tracking ", tracking), func(t *testing.T) {
			t.Parallel()
			rdb := connect(t, server.ForTest(t).Addr())
			patient := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, ReadTimeout: time.Minute, MaxRetries: -1})
			t.Cleanup(func() { patient.Close() })
			fill := func(key string) {
				const script = `for i = 1, 30 do redis.call('HSET', KEYS[1], '6ba7b810-9dad-41d1-80b4-0000000000' .. (10 + i) .. ':1', string.rep('x', ARGV[1])) end`
				err := patient.Eval(t.Context(), script, []string{key}, element).Err()
				check.Require(t, err == nil || err == redis.Nil, "%v", err)
			}
			fill("lock:large")
			check.NoError(t, rdb.HSet(t.Context(), "lock:growing", "6ba7b810-9dad-41d1-80b4-000000000011:1", 1).Err())
			called := func(command string) (calls int) {
				for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
					_, _ = fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &calls)
				}
				return calls
			}
			via := rdb
			if !tracking {
				check.NoError(t, server.SetUser(t.Context(), rdb, "untracked", "reset", "on", ">secret", "~*", "+@all", "-client", "+client|setname", "+client|id"))
				via = redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: "untracked", Password: "secret"})
				t.Cleanup(func() { via.Close() })
			}
			live := inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(via, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})))
			defer live.Close()
			locks := func() []*keyspace.Lock {
				snap := check.Must(live.Snapshot(t.Context()))(t)
				return snap.Locks
			}
			oversized := func(key string) bool {
				return slices.ContainsFunc(locks(), func(l *keyspace.Lock) bool { return l.Key == key && l.Format == "oversized" })
			}
			await := func(what string, so func() bool) {
				t.Helper()
				for until := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
					check.Require(t, !time.Now().After(until), "not within a minute: %s; %+v", what, locks())
				}
			}
			await("the large value", func() bool { return oversized("lock:large") })
			await("the small value", func() bool { return len(locks()) == 2 })
			fill("lock:growing")
			await("the grown value", func() bool { return oversized("lock:growing") })
			before := called("hscan")
			for i := range changes {
				checked := called("hlen")
				for _, key := range []string{"lock:large", "lock:growing"} {
					check.NoError(t, rdb.HSet(t.Context(), key, "changes", i).Err())
				}
				await("another read", func() bool { return called("hlen") > checked })
			}
			after := called("hscan")
			check.True(t, after <= before, "the elements were read %d times", after-before)
		})
	}
}
