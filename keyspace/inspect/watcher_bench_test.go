//go:build unix

package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

// changes acquires and releases so many locks on the server, and returns each
// change with the time when the server made it.
const changes = `
for i, key in ipairs(KEYS) do
  if redis.call('DEL', key) == 0 then
    redis.call('SET', key, 'token:' .. ARGV[1], 'PX', 60000)
  end
end
local t = redis.call('TIME')
return t[1] * 1000000 + t[2]`

// BenchmarkFollowing watches 10,000 locks with 5,000 changes per second, and reports the delay of
// the events and the CPU time: go test -bench Following -benchtime 1x ./keyspace
func BenchmarkFollowing(b *testing.B) {
	const (
		locks   = 10_000
		atOnce  = 50
		tick    = 10 * time.Millisecond
		lasting = 10 * time.Second
	)
	child := server.ForTest(b)
	rdb := connect(b, redis.Options{Addr: child.Addr()})
	p := rdb.Pipeline()
	for i := range locks {
		p.Set(b.Context(), fmt.Sprintf("lock:%d", i), "token:x", time.Hour)
	}
	check.Must(p.Exec(b.Context()))(b)
	for b.Loop() {
		l := listened(b, rdb, justTokens())
		before := cpu(b)
		made := make(map[string]time.Time) // by key and round
		var order []string
		ctx, stop := context.WithTimeout(b.Context(), lasting)
		for n := 0; ctx.Err() == nil; n++ {
			keys := make([]string, atOnce)
			for i := range keys {
				keys[i] = fmt.Sprintf("lock:%d", (n*atOnce+i)%locks)
			}
			us := check.Must(rdb.Eval(b.Context(), changes, keys, n).Int64())(b)
			for _, key := range keys {
				id := fmt.Sprint(key, " ", n)
				made[id] = time.UnixMicro(us)
				order = append(order, id)
			}
			time.Sleep(time.Until(time.Now().Truncate(tick).Add(tick)))
		}
		stop()
		l.wait(b, fmt.Sprintf("%d events", len(order)), func() bool { return len(l.events) >= len(order) })
		report(b, l, made, order, cpu(b)-before, lasting)
	}
}

// report compares the reported changes of each key, in order, with those that were made.
func report(b *testing.B, l *log, made map[string]time.Time, order []string, used, lasting time.Duration) {
	b.Helper()
	byKey := make(map[string][]time.Time)
	for _, id := range order {
		var key string
		var n int
		check.Must(fmt.Sscan(id, &key, &n))(b)
		byKey[key] = append(byKey[key], made[id])
	}
	var late []time.Duration
	for _, e := range l.all() {
		times := byKey[e.Lock.Key]
		if len(times) == 0 {
			continue
		}
		late = append(late, e.heard.Sub(times[0]))
		byKey[e.Lock.Key] = times[1:]
	}
	for key, times := range byKey {
		check.True(b, len(times) == 0, "%d changes of %s were not reported", len(times), key)
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(late))/lasting.Seconds(), "events/s")
	b.ReportMetric(100*used.Seconds()/lasting.Seconds(), "%cpu")
	b.ReportMetric(0, "ns/op")
}

// cpu returns the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	check.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
