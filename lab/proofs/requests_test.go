package proofs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/lab/internal/labtest"
)

// Of many locks that are held for a minute, some of them renewed, none counts as asked for, and
// the looks cost the server at most 1 % of its time. The server's CPU time without them is that
// under an LFU policy, with which there are none.
func TestNoneOfManyQuietLocksIsAskedFor(t *testing.T) {
	testtier.Long(t, "it watches quiet locks for a minute")
	const locks = 10_000
	lasting := time.Duration(testtier.Size(5, 10, 60)) * time.Second
	rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{})
	p := rdb.Pipeline()
	for i := range locks {
		p.Set(t.Context(), fmt.Sprintf("lock:%d", i), uuid.NewString(), time.Hour)
	}
	check.Must(p.Exec(t.Context()))(t)
	renewed := 0
	repeat(t, rdb, 5*time.Millisecond, func() []any { // a tenth of the locks, each every 5 s
		renewed++
		return []any{"PEXPIRE", fmt.Sprintf("lock:%d", renewed%(locks/10)), 3_600_000}
	})
	busy := func(blind bool) (share float64, looks int) {
		var begin time.Time
		var before float64
		asked := make(map[string]bool)
		observe(t, rdb, func(s keyspace.Snapshot) bool {
			ready := s.Complete && s.Watch.Mode == keyspace.Push && len(s.Locks) == locks && (s.Nodes[0].AskBlind != "") == blind
			if begin.IsZero() && ready {
				begin, before, looks = time.Now(), serverCPU(t, rdb), idleTimes(t, rdb)
			}
			for _, l := range s.Locks {
				if !l.AskedAt.IsZero() {
					asked[l.Key] = true
				}
			}
			return !begin.IsZero() && time.Since(begin) >= lasting
		})
		check.True(t, len(asked) == 0, "%d of %d quiet locks count as asked for", len(asked), locks)
		return (serverCPU(t, rdb) - before) / time.Since(begin).Seconds(), idleTimes(t, rdb) - looks
	}
	with, looks := busy(false)
	usec := time.Duration(called(t, rdb, "object|idletime", "usec")+called(t, rdb, "object", "usec")) * time.Microsecond
	check.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err())
	without, none := busy(true)
	t.Logf("%d quiet locks for %v: %d looks, %v in commands, and %.2f %% of a core: the server needs %.2f %% with them and %.2f %% without",
		locks, lasting, looks, usec, 100*(with-without), 100*with, 100*without)
	check.True(t, looks >= locks/4 && none <= 0, "%d looks, and %d with an LFU policy", looks, none)
	check.True(t, !testtier.Proving() || with-without <= 0.01, "the looks cost %.2f %% of the server's time", 100*(with-without))
}

// serverCPU returns the CPU time of a server in seconds.
func serverCPU(t *testing.T, rdb server.Client) (sum float64) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "cpu").Result()
	check.NoError(t, err)
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		var seconds float64
		_, rest, _ := strings.Cut(info, name)
		check.Must(fmt.Sscanf(rest, "%g", &seconds))(t)
		sum += seconds
	}
	return sum
}

// idleTimes returns how many idle times the server was asked for.
func idleTimes(t *testing.T, rdb server.Client) int {
	t.Helper()
	return called(t, rdb, "object|idletime", "calls") + called(t, rdb, "object", "calls")
}

// called returns a figure of a command, such as its calls; 0 if it was never called.
func called(t *testing.T, rdb server.Client, name, figure string) (n int) {
	t.Helper()
	info := check.Must(rdb.Info(t.Context(), "commandstats").Result())(t)
	_, line, _ := strings.Cut(info, "cmdstat_"+name+":")
	_, number, _ := strings.Cut(line[:strings.IndexByte(line+"\n", '\n')], figure+"=")
	_, _ = fmt.Sscanf(number, "%d", &n)
	return n
}

// quietOptions returns the options of the program, whose own reads are no requests of others.
func quietOptions() inspect.ScanOptions {
	return inspect.ScanOptions{Formats: formats.All(), OwnReads: new(inspect.OwnReads), Budget: inspect.NewBudget(inspect.DefaultShare)}
}

// observe watches the locks of a server until a condition holds.
func observe(t *testing.T, rdb server.Client, so func(keyspace.Snapshot) bool) {
	t.Helper()
	b := inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(rdb, quietOptions())))
	defer b.Close()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := b.Snapshot(t.Context())
		if err == nil && so(s) {
			return
		}
		check.Require(t, !time.Now().After(deadline), "%v: of %d: %+v", err, len(s.Locks), s.Watch)
	}
}

// repeat sends commands, one each time, until the test ends.
func repeat(t *testing.T, rdb server.Client, every time.Duration, command func() []any) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(every); ; {
			argv := command()
			err := rdb.Do(ctx, argv...).Err()
			check.True(t, err == nil || err == redis.Nil || ctx.Err() != nil, "%q: %v", argv, err)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

// Every lock that clients poll for counts as asked for within 2 s, however often they poll, and
// also among many other locks once it is known.
func TestEveryPolledLockIsAskedForSoon(t *testing.T) {
	testtier.Long(t, "it measures how soon a request is seen")
	rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{})
	const locks = 40
	for i := range 900 {
		check.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("lock:quiet:%d", i), uuid.NewString(), 10*time.Minute).Err())
	}
	for i := range locks {
		check.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("lock:%d", i), uuid.NewString(), 10*time.Minute).Err())
	}
	b := inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(rdb, quietOptions())))
	defer b.Close()
	var begin time.Time
	var late []time.Duration
	seen := make(map[string]bool)
	for deadline := time.Now().Add(time.Minute); len(seen) < locks; time.Sleep(5 * time.Millisecond) {
		s, err := b.Snapshot(t.Context())
		check.Require(t, err == nil && !time.Now().After(deadline), "%v: %d of %d are asked for", err, len(seen), locks)
		if begin.IsZero() && s.Complete && s.Watch.Mode == keyspace.Push && called(t, rdb, "getrange", "calls") > 0 && idleTimes(t, rdb) > 900 {
			begin = time.Now()
			for i := range locks {
				polls := []time.Duration{5, 20, 50, 100, 250}[i%5] * time.Millisecond
				other := labtest.Client(t, servertest.AddrOf(rdb), server.ClientOptions{})
				repeat(t, other, polls, func() []any {
					return []any{"SET", fmt.Sprintf("lock:%d", i), "b1d2c3e4-f5a6-4b7c-8d9e-0f1a2b3c4d5e", "NX", "PX", 1000}
				})
			}
		}
		for _, l := range s.Locks {
			if l.Asked(s.At) && !seen[l.Key] {
				seen[l.Key] = true
				late = append(late, time.Since(begin))
			}
		}
	}
	slices.Sort(late)
	t.Logf("of %d locks that are polled every 5 to 250 ms, half are seen after %v, all after %v", locks, late[locks/2], late[locks-1])
	worst := late[locks-1]
	check.True(t, (!testtier.Proving() || worst <= 2*time.Second), "a request was seen after %v", worst)
}
