package proofs

import (
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

// The report of several agents is that of all their events: the counts are equal, and the
// histograms, bucket for bucket. The agents start at the same time, though their clocks
// differ by 10 s.
func TestTheFiguresOfAgentsAreThoseOfAllTheirEvents(t *testing.T) {
	testtier.Long(t, "it runs loads by agents for seconds")
	t.Parallel()
	shifts := []time.Duration{5 * time.Second, -5 * time.Second, 0}
	for name, addr := range map[string]func(*testing.T) string{
		"embedded": func(t *testing.T) string { return servertest.EmbeddedForTest(t).Addr() },
		"redis":    func(t *testing.T) string { return servertest.RedisForTest(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareWithEvents(t, newAgentRig(t, addr(t), []string{addr(t)}, shifts...))
		})
	}
}

func compareWithEvents(t *testing.T, r *agentRig) {
	const n, enough = 3, 300
	l := r.start(n, loadgen.Scenario{
		// Only the waiters behind a long hold lose their patience, also on a slow machine.
		Clients: 12, Keys: loadgen.Keys{N: 3}, Hold: loadgen.Bimodal(3*time.Millisecond, 800*time.Millisecond, 0.02), Think: loadgen.Exp(20 * time.Millisecond), Patience: 400 * time.Millisecond,
	})
	r.until(l, "holds and time-outs", func(m loadgen.Metrics) bool { return m.Acquired > enough && m.TimedOut > 0 })
	// Attempts that the end of a run cuts off have no event: the clients go idle before.
	s := l.Scenario()
	s.Think = loadgen.Const(time.Hour)
	check.NoError(t, l.Apply(s))
	before, since := int64(-1), time.Duration(0)
	r.until(l, "idle clients", func(m loadgen.Metrics) bool {
		if m.Elapsed < since+3*time.Second/2 {
			return false
		}
		idle := m.Arrivals == before && m.Clients.Idle == s.Clients
		before, since = m.Arrivals, m.Elapsed
		return idle
	})
	check.ErrorIs(t, l.Stop(), nil)
	m := l.Metrics()
	gaps := l.Incomplete()
	check.True(t, len(gaps) == 0 && !m.Running && m.CutOff == 0, "%q, running %t, %d cut off", gaps, m.Running, m.CutOff)
	wait, held := newHistogram(), newHistogram()
	first := make([]time.Time, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum loadgen.Counts
	for agent, events := range r.events {
		var own loadgen.Counts
		for _, e := range events {
			check.Require(t, e.Client > agent*loadgen.MaxClients && e.Client <= agent*loadgen.MaxClients+s.Part(agent-1, n),
				"agent %d has client %d", agent, e.Client)
			for _, c := range []*loadgen.Counts{&own, &sum} {
				countEvent(c, e.Kind)
			}
			switch e.Kind {
			case loadgen.Acquired, loadgen.TimedOut:
				check.NoError(t, wait.RecordValue(int64(e.Took)))
			case loadgen.Released, loadgen.Expired, loadgen.Lost:
				check.NoError(t, held.RecordValue(int64(e.Took)))
			}
		}
		if of := l.Agents()[agent-1]; of.Metrics.Counts != own || !of.Stopped || of.Lost || of.Clients != s.Part(agent-1, n) {
			t.Errorf("agent %d: %+v\nits events: %+v", agent, of, own)
		}
		first[agent-1] = events[0].At
	}
	check.True(t, m.Counts == sum && sum.Acquired >= enough && len(r.events) == n, "got  %+v\nwant %+v", m.Counts, sum)
	for name, pair := range map[string]struct {
		got  loadgen.Latency
		want *hdrhistogram.Histogram
	}{"wait": {m.Latency.Wait, wait}, "held": {m.Latency.Held, held}} {
		at := func(percent float64) time.Duration {
			return min(time.Duration(pair.want.ValueAtQuantile(percent)), pair.got.Max)
		}
		want := loadgen.Latency{
			Count: pair.want.TotalCount(), Censored: pair.got.Censored, Mean: time.Duration(pair.want.Mean()),
			P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9), Max: pair.got.Max,
		}
		check.Equal(t, pair.got, want, "%s, beside the events", name)
	}
	earliest, latest := slices.MinFunc(first, time.Time.Compare), slices.MaxFunc(first, time.Time.Compare)
	if apart := latest.Sub(earliest); apart > 2*time.Second || earliest.Sub(m.Began).Abs() > 2*time.Second {
		t.Errorf("the agents began %s apart; the report says %s, the first client %s", apart, m.Began, earliest)
	}
	if w := l.Witness(); w.Holds != m.Acquired || w.Overlaps != 0 || w.Unseen != 0 || w.Proven < m.Acquired*9/10 || w.Err != nil {
		t.Errorf("%+v of %d acquired", w, m.Acquired)
	}
	perSecond := int64(0)
	for _, second := range m.Seconds {
		perSecond += second.Acquired
	}
	check.Equal(t, perSecond, m.Acquired, "acquired in the seconds")
	r.checkNoKeys()
}

// countEvent counts an event in the counts of a run.
func countEvent(c *loadgen.Counts, kind loadgen.EventKind) {
	of := map[loadgen.EventKind]*int64{
		loadgen.Arrived: &c.Arrivals, loadgen.Acquired: &c.Acquired, loadgen.TimedOut: &c.TimedOut, loadgen.Refused: &c.Refused, loadgen.Failed: &c.Errors,
		loadgen.Released: &c.Released, loadgen.Expired: &c.Expired, loadgen.Lost: &c.Lost, loadgen.Abandoned: &c.Abandoned,
	}
	if n := of[kind]; n != nil {
		*n++
	}
}

// newHistogram returns a histogram with the bounds that package loadgen documents.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 2)
}
