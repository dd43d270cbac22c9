package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// Of many locks that are held for a minute, some of them renewed, none counts as asked for, and
// the looks cost the server at most 1 % of its time. The server's CPU time without them is that
// under an LFU policy, with which there are none.
func TestNoneOfManyQuietLocksIsAskedFor(t *testing.T) {
	testtier.Long(t, "it watches quiet locks for a minute")
	const locks = 10_000
	lasting := time.Duration(testtier.Size(5, 10, 60)) * time.Second
	rdb := realServer(t)
	p := rdb.Pipeline()
	for i := range locks {
		p.Set(t.Context(), fmt.Sprintf("lock:%d", i), fmt.Sprintf("token:%d", i), time.Hour)
	}
	check.Must(p.Exec(t.Context()))(t)
	renewed := 0
	repeat(t, connect(t, redis.Options{Addr: rdb.Options().Addr}), 5*time.Millisecond, func() []any { // a tenth of the locks, each every 5 s
		renewed++
		return []any{"PEXPIRE", fmt.Sprintf("lock:%d", renewed%(locks/10)), 3_600_000}
	})
	o := requestOptions()
	o.Budget = inspect.NewBudget(inspect.DefaultShare)

	busy := func(blind bool) (share float64, looks int) {
		var begin time.Time
		var before float64
		asked := make(map[string]bool)
		observe(t, rdb, o, func(s keyspace.Snapshot) bool {
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
	usec := commandTime(t, rdb, "object")
	do(t, rdb, "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
	without, none := busy(true)
	t.Logf("%d quiet locks for %v: %d looks, %v in commands, and %.2f %% of a core: the server needs %.2f %% with them and %.2f %% without",
		locks, lasting, looks, usec, 100*(with-without), 100*with, 100*without)
	check.True(t, looks >= locks/2 && none <= 0, "%d looks, and %d with an LFU policy", looks, none)
	check.True(t, !testtier.Proving() || with-without <= 0.01, "the looks cost %.2f %% of the server's time", 100*(with-without))
}

// serverCPU returns the CPU time of a server in seconds.
func serverCPU(t *testing.T, rdb *redis.Client) (sum float64) {
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
func idleTimes(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	return called(t, rdb, "object|idletime") + called(t, rdb, "object")
}

// commandTime returns the time that commands with this name have taken.
func commandTime(t *testing.T, rdb *redis.Client, name string) (sum time.Duration) {
	t.Helper()
	for command, stat := range stats(t, rdb) {
		if first, _, _ := strings.Cut(command, "|"); first == name {
			var calls, usec int64
			_, _ = fmt.Sscanf(stat, "calls=%d,usec=%d", &calls, &usec)
			sum += time.Duration(usec) * time.Microsecond
		}
	}
	return sum
}

// Every lock that clients poll for counts as asked for within 2 s, however often they poll, and
// also among many other locks once it is known.
func TestEveryPolledLockIsAskedForSoon(t *testing.T) {
	testtier.Long(t, "it measures how soon a request is seen")
	rdb := realServer(t)
	const locks = 40
	for i := range 900 {
		do(t, rdb, "SET", fmt.Sprintf("lock:quiet:%d", i), "token:x", "PX", 600_000)
	}
	for i := range locks {
		do(t, rdb, "SET", fmt.Sprintf("lock:%d", i), "token:x", "PX", 600_000)
	}
	b := inspect.StartWatcher(follow(rdb, requestOptions()))
	defer b.Close()
	var begin time.Time
	var late []time.Duration
	seen := make(map[string]bool)
	for deadline := time.Now().Add(time.Minute); len(seen) < locks; time.Sleep(5 * time.Millisecond) {
		s, err := b.Snapshot(t.Context())
		check.Require(t, err == nil && !time.Now().After(deadline), "%v: %d of %d are asked for", err, len(seen), locks)
		if begin.IsZero() && s.Complete && s.Watch.Mode == keyspace.Push && called(t, rdb, "getrange") > 0 && idleTimes(t, rdb) > 900 {
			begin = time.Now()
			for i := range locks {
				polls := []time.Duration{5, 20, 50, 100, 250}[i%5] * time.Millisecond
				repeat(t, connect(t, redis.Options{Addr: rdb.Options().Addr}), polls, command("SET", fmt.Sprintf("lock:%d", i), "token:2", "NX", "PX", 1000))
			}
		}
		for _, key := range askedFor(s) {
			if !seen[key] {
				seen[key] = true
				late = append(late, time.Since(begin))
			}
		}
	}
	slices.Sort(late)
	t.Logf("of %d locks that are polled every 5 to 250 ms, half are seen after %v, all after %v", locks, late[locks/2], late[locks-1])
	worst := late[locks-1]
	check.True(t, (!testtier.Proving() || worst <= 2*time.Second), "a request was seen after %v", worst)
}
