package proofs

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
	"locktop/loadgen"
)

// While a server stops for 1.5 s, arrivals at 200/s wait for 0 to 1.5 s, evenly
// distributed. They are 25% of the arrivals of 6 s. With a timeout of 1 s the
// first 100 of them fail, each after 1 s on its own connection.
func TestWaitsAroundAPauseOfTheServerAreThoseOfTheory(t *testing.T) {
	testtier.Proof(t, "it compares measured times with those of theory, on a quiet machine")
	const (
		rate   = 200
		length = 6 * time.Second
		pause  = 1500 * time.Millisecond
	)
	for _, c := range []struct {
		name          string
		timeout       time.Duration
		p90, p99, max time.Duration
	}{
		{"a timeout above the pause", 3 * time.Second, 900 * time.Millisecond, 1440 * time.Millisecond, 1500 * time.Millisecond},
		{"a timeout below the pause", time.Second, 900 * time.Millisecond, time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			child := servertest.RedisForTest(t)
			rdb := redis.NewClient(&redis.Options{
				Addr: child.Addr(), ReadTimeout: c.timeout, WriteTimeout: c.timeout, ContextTimeoutEnabled: true, MaxRetries: -1,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			r := check.Must(loadgen.New(loadgen.Servers{Redis: rdb}, loadgen.Scenario{
				Clients: 600, Conns: 600, Keys: loadgen.Keys{N: 10_000}, Rate: rate, Hold: loadgen.Const(0), Lock: loadgen.Lock{TTL: 20 * time.Second},
				Duration: length,
			}))(t)
			t.Cleanup(func() { _ = r.Close() })
			check.NoError(t, r.Start())
			labtest.Within(t, labtest.LongestWait, func() bool { return r.Metrics().Acquired >= rate })
			check.NoError(t, child.Freeze())
			began := time.Now()
			time.Sleep(pause)
			check.NoError(t, child.Continue())
			for r.Metrics().Clients.Waiting > 2 {
				time.Sleep(time.Millisecond)
			}
			took := time.Since(began)
			<-r.Done()
			m := r.Metrics()
			// The machine may have slept for longer, and it took a while to serve the waiters.
			late := took - pause
			near := func(name string, got, want time.Duration) {
				check.True(t, math.Abs(float64(got-want)) <= 0.05*float64(want)+float64(late), "%s is %s, theory has %s", name, got, want)
			}
			t.Logf("p90 %s, p99 %s, max %s; the server stopped for %s", m.Latency.Wait.P90, m.Latency.Wait.P99, m.Latency.Wait.Max, took)
			near("p90", m.Latency.Wait.P90, c.p90)
			near("p99", m.Latency.Wait.P99, c.p99)
			near("max", m.Latency.Wait.Max, c.max)
			if offered := m.Arrivals + m.Backlog; offered < rate*int64(length.Seconds()) || float64(offered) > rate*m.Elapsed.Seconds()+1 {
				t.Errorf("%d offered in %s at %d/s", offered, m.Elapsed, rate)
			}
			check.Equal(t, c.timeout < pause, m.Errors > 0, "%d errors: %s", m.Errors, m.LastErr)
		})
	}
}
