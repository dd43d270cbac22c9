package loadgen

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every connection that it cannot open
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: 12})
}

// connect returns a client of a server on loopback.
func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(&redis.Options{Addr: addr}))
}

// piped returns a client of a server inside the test's synctest bubble.
func piped(t testing.TB) *redis.Client {
	t.Helper()
	s := server.NewPiped()
	t.Cleanup(s.Close)
	return piping(t, s)
}

// piping returns a client of an embedded server. A dial that fails because the test ends is not
// repeated: the pause before it would outlive the bubble of the test.
func piping(t testing.TB, s *server.Embedded) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: s.Dial, DialerRetries: 1}))
}

func closing(t testing.TB, rdb *redis.Client) *redis.Client {
	t.Cleanup(func() { check.ErrorIs(t, rdb.Close(), nil) })
	return rdb
}

// started returns a run that stops at the end of the test.
func started(t testing.TB, rdb *redis.Client, s Scenario) *Run {
	t.Helper()
	r := check.Must(New(Servers{Redis: rdb}, s))(t)
	return running(t, r)
}

// ended returns a function that runs a new run to its end: ended(New(…))(t).
func ended(r *Run, err error) func(testing.TB) *Run {
	return func(t testing.TB) *Run {
		t.Helper()
		<-running(t, check.Must(r, err)(t)).Done()
		return r
	}
}

func running(t testing.TB, r *Run) *Run {
	t.Helper()
	t.Cleanup(func() { check.ErrorIs(t, r.Close(), nil) })
	check.NoError(t, r.Start())
	return r
}

// after returns the figures of a run in fake time after each of the pauses, or at its end if there are none.
func after(t *testing.T, s Scenario, pauses ...time.Duration) (all []Metrics) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), s)
		for _, pause := range pauses {
			time.Sleep(pause)
			all = append(all, summed(t, r))
		}
		if len(pauses) == 0 {
			<-r.Done()
			all = append(all, summed(t, r))
		}
	})
	return all
}

func stop(t testing.TB, r *Run) {
	t.Helper()
	check.NoError(t, r.Stop())
}

// until polls a run until its figures meet a condition, and fails the test if that takes too long.
func until(t testing.TB, r *Run, wanted string, ok func(Metrics) bool) Metrics {
	t.Helper()
	for range 3000 {
		if m := r.Metrics(); ok(m) {
			return m
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never saw %s; last: %+v", wanted, r.Metrics())
	return Metrics{}
}

// summed returns the metrics of a run, and fails the test unless their sums are correct.
func summed(t testing.TB, r *Run) Metrics {
	t.Helper()
	m := r.Metrics()
	checkSums(t, m)
	return m
}

// checkSums fails the test unless the sums that Metrics promises are correct.
func checkSums(t testing.TB, m Metrics) {
	t.Helper()
	if got := m.Acquired + m.TimedOut + m.Refused + m.Errors + m.CutOff + int64(m.Clients.Waiting); m.Arrivals != got {
		t.Errorf("%d arrivals, but %d acquired + timed out + refused + errors + cut off + waiting: %+v", m.Arrivals, got, m)
	}
	if got := m.Acquired + m.TimedOut + m.Refused + m.Errors + m.CutOff; !m.Running && m.Latency.Wait.Count != got+m.Backlog || m.Running && m.Latency.Wait.Count != got {
		t.Errorf("%d waits, but %d attempts are over, and %d arrivals had no client: %+v", m.Latency.Wait.Count, got, m.Backlog, m)
	}
	check.True(t, m.Latency.Wait.Censored == m.Latency.Wait.Count-m.Acquired,
		"%d of %d waits censored, but %d acquired", m.Latency.Wait.Censored, m.Latency.Wait.Count, m.Acquired)
	if got := m.Released + m.Expired + m.Lost + m.Unconfirmed + m.Abandoned + int64(m.Clients.Holding); m.Acquired != got {
		t.Errorf("%d acquired, but %d released + expired + lost + unconfirmed + abandoned + holding: %+v", m.Acquired, got, m)
	}
	if got := m.Clients.Idle + m.Clients.Waiting + m.Clients.Holding + m.Clients.Dead; m.Clients.Total != got || m.Clients.Total != len(m.Clients.States) {
		t.Errorf("%d clients, but %d idle + waiting + holding + dead and %d cells", m.Clients.Total, got, len(m.Clients.States))
	}
	cells := map[ClientState]int{}
	for _, cell := range m.Clients.States {
		cells[cell]++
	}
	if cells[Frozen]+cells[Partitioned] > 0 {
		return // these clients also have another state
	}
	check.True(t, cells[Thinking] == m.Clients.Idle && cells[Queued] == m.Clients.Waiting && cells[Inside] == m.Clients.Holding,
		"cells %v do not agree with %d idle, %d waiting, %d holding", cells, m.Clients.Idle, m.Clients.Waiting, m.Clients.Holding)
}

// checkNoKeys fails the test if the server has any keys.
func checkNoKeys(t testing.TB, rdb *redis.Client) {
	t.Helper()
	keys := check.Must(rdb.Keys(context.Background(), "*").Result())(t)
	check.AtMost(t, len(keys), 0, "keys left behind: %q", keys)
}
