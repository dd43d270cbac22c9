package loadgen

import (
	"testing"
	"time"

	"locktop/internal/check"
)

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
	check.False(t, m.Latency.Handoff.Count > 0 || m.Violations.StuckKey.Count > 0 || m.Acquired < 18 || m.Backlog < 100,
		"%d hand-offs, %d times stuck, %d acquired, %d without a client", m.Latency.Handoff.Count, m.Violations.StuckKey.Count, m.Acquired, m.Backlog)
}
