package loadgen

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// While a server stops for 1.5 s, arrivals at 200/s wait for 0 to 1.5 s, evenly
// distributed. They are 25% of the arrivals of 6 s. With a timeout of 1 s the
// first 100 of them fail, each after 1 s on its own connection.
func TestWaitsAroundAPauseOfTheServerAreThoseOfTheory(t *testing.T) {
	if !testtier.Proving() {
		t.Skip("it compares measured times with those of theory; LOCKTOP_PROOF=1 runs it on a quiet machine")
	}
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
			child := server.ForTest(t)
			rdb := closing(t, redis.NewClient(&redis.Options{
				Addr: child.Addr(), ReadTimeout: c.timeout, WriteTimeout: c.timeout, ContextTimeoutEnabled: true, MaxRetries: -1,
			}))
			r := started(t, rdb, Scenario{
				Clients: 600, Conns: 600, Keys: Keys{N: 10_000}, Rate: rate, Hold: Const(0), Lock: Lock{TTL: 20 * time.Second},
				Duration: length,
			})
			until(t, r, "200 acquisitions", func(m Metrics) bool { return m.Acquired >= rate })
			check.NoError(t, child.Freeze())
			began := time.Now()
			time.Sleep(pause)
			check.NoError(t, child.Continue())
			for r.Metrics().Clients.Waiting > 2 {
				time.Sleep(time.Millisecond)
			}
			took := time.Since(began)
			<-r.Done()
			m := summed(t, r)
			// The machine may have slept for longer, and it took a while to serve the waiters.
			late := took - pause
			near := func(name string, got, want time.Duration) {
				check.True(t, math.Abs(float64(got-want)) <= 0.05*float64(want)+float64(late), "%s is %s, theory has %s", name, got, want)
			}
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

// One client is busy for the whole run, with one arrival per second: arrival 0 is served, those of 1 to 10 s are not.
func TestArrivalsWithoutAClientCountAsLongAsTheyWaited(t *testing.T) {
	m := after(t, Scenario{Clients: 1, Keys: Keys{N: 1}, Rate: 1, Hold: Const(time.Hour), Duration: 10 * time.Second})[0]
	check.True(t, m.Arrivals == 1 && m.Backlog == 10 && m.Latency.Wait.Count == 11 && m.Latency.Wait.Censored == 10,
		"%d arrivals, %d without a client, %d waits, %d of them cut off", m.Arrivals, m.Backlog, m.Latency.Wait.Count, m.Latency.Wait.Censored)
	w := m.Latency.Wait
	check.True(t, w.Max == 9*time.Second && m.Fairness.Starved == 9*time.Second && w.P50.Round(time.Second) == 4*time.Second,
		"the first of them waited for 9 s: %+v, longest %s", m.Latency.Wait, m.Fairness.Starved)
}

// If the generator has no free client, the lock is not blamed: no attempt was made.
func TestAnArrivalWithoutAClientDoesNotWaitAtTheLock(t *testing.T) {
	m := after(t, Scenario{
		Clients: 1, Rate: 10, Keys: Keys{N: 5}, Lock: Lock{TTL: 100 * time.Millisecond}, Hold: Const(time.Second), Seed: 1,
	}, 20*time.Second)[0]
	check.False(t, m.Latency.Handoff.Count > 0 || m.Violations.Stuck > 0 || m.Acquired < 18 || m.Backlog < 100,
		"%d hand-offs, %d times stuck, %d acquired, %d without a client", m.Latency.Handoff.Count, m.Violations.Stuck, m.Acquired, m.Backlog)
}
