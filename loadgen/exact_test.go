package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/loadgen/oracle"
)

func TestEveryOutcomeOfAnAttemptHasItsCountAndItsWait(t *testing.T) {
	began := time.Unix(100, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	for how, of := range map[outcome]func(Metrics) int64{
		timedOut:  func(m Metrics) int64 { return m.TimedOut },
		refused:   func(m Metrics) int64 { return m.Refused },
		failed:    func(m Metrics) int64 { return m.Errors },
		calledOff: func(m Metrics) int64 { return m.CutOff },
	} {
		r := newRecorder(began, role{})
		r.clientJoined(0)
		r.clientJoined(1)
		holds := &round{arrival: arrival{due: at(1)}, at: at(3)}
		r.observe(asked, holds)
		r.observe(entered, holds)
		waits := &round{client: 1, arrival: arrival{due: at(2), late: true}, at: at(7), how: how, err: errors.New("because")}
		r.observe(asked, waits)
		if m := r.metrics(at(4)); m.Fairness.Starved != 2*time.Second || m.Clients.Waiting != 1 || m.LateArrivals != 1 {
			t.Errorf("while it waits: %+v", m)
		}
		check.Equal(t, r.metrics(at(9)).Fairness.Starved, 7*time.Second, "the longest wait")
		r.observe(gaveUp, waits)
		m := r.metrics(at(20))
		check.True(t, of(m) == 1 && m.TimedOut+m.Refused+m.Errors+m.CutOff == 1 && m.Clients.Waiting == 0 && m.Clients.Idle == 1,
			"outcome %d: %+v", how, m)
		if m.Fairness.Starved != 5*time.Second || m.Latency.Wait.Max != 5*time.Second || m.Latency.Wait.Count != 2 || m.Latency.Wait.Censored != 1 {
			t.Errorf("outcome %d: it waited for 5 s: %+v %+v", how, m.Latency.Wait, m.Fairness)
		}
		check.Equal(t, m.Fairness.Jain, 0.5, "Jain") // one of two clients got all holds
	}
}

func TestEveryOutcomeOfAHoldHasItsCount(t *testing.T) {
	for how, of := range map[outcome]func(Metrics) int64{
		released: func(m Metrics) int64 { return m.Released }, expired: func(m Metrics) int64 { return m.Expired },
		lost: func(m Metrics) int64 { return m.Lost }, abandoned: func(m Metrics) int64 { return m.Abandoned },
		crashed: func(m Metrics) int64 { return m.Abandoned }, unconfirmed: func(m Metrics) int64 { return m.Unconfirmed },
	} {
		r := newRecorder(time.Unix(0, 0), role{})
		r.clientJoined(0)
		hold := &round{at: time.Unix(1, 0), hold: &oracle.Hold{Began: time.Unix(1, 0)}, left: time.Unix(4, 0), err: errors.New("because")}
		r.observe(asked, hold)
		r.observe(entered, hold)
		hold.how = how
		r.observe(freed, hold)
		m := r.metrics(time.Unix(5, 0))
		if of(m) != 1 || m.Released+m.Expired+m.Lost+m.Abandoned+m.Unconfirmed != 1 || m.Latency.Held.Max != 3*time.Second || m.Clients.Holding != 0 || m.Clients.Idle != 1 {
			t.Errorf("outcome %d: %+v", how, m)
		}
	}
}

// A client of a fair lock that stalls for longer than the claim time loses its
// place, however long a lease is. That is not overtaking.
func TestAStallExplainsTheLossesThatItCanCause(t *testing.T) {
	for _, c := range []struct {
		lock Lock
		want time.Duration
	}{
		{Lock{Kind: Mutex, TTL: 40 * time.Second}, 5 * time.Second},
		{Lock{Kind: Fair, TTL: 40 * time.Second}, 125 * time.Millisecond},
		{Lock{Kind: Fair, TTL: 400 * time.Millisecond}, 50 * time.Millisecond},
		{Lock{Kind: Mutex, TTL: 10 * time.Millisecond}, 10 * time.Millisecond},
	} {
		check.Equal(t, c.lock.costlyDelay(), c.want, "%s with a ttl of %s", c.lock.Kind, c.lock.TTL)
	}
}

func TestThresholdsCompareAsTheySay(t *testing.T) {
	for op, want := range map[string][3]bool{ // of 1, 2 and 3 compared with 2
		"==": {false, true, false}, "!=": {true, false, true}, "<": {true, false, false},
		"<=": {true, true, false}, ">": {false, false, true}, ">=": {false, true, true},
	} {
		for i, v := range []int64{1, 2, 3} {
			got := (Threshold{Figure: "stuck_key.count", Op: op, Value: 2}).Met(Metrics{Violations: oracle.Violations{StuckKey: oracle.Tally{Count: v}}})
			check.True(t, got == want[i], "%d %s 2: %t", v, op, got)
		}
	}
}

// A lease that expired is lost, too. Mutation T2.
func TestARateIsAShareOfItsWhole(t *testing.T) {
	m := Metrics{Counts: Counts{Arrivals: 200, Acquired: 100, Lost: 3, Expired: 4, TimedOut: 10, Errors: 20, LateArrivals: 30}}
	for name, want := range map[string]float64{"lost_or_expired.rate": 0.07, "timed_out.rate": 0.05, "errors.rate": 0.1, "late.rate": 0.15} {
		check.Equal(t, m.Figures()[name], want, "%s", name)
	}
}

func TestAFigureWithoutSamplesMeetsNoThreshold(t *testing.T) {
	unseen := Metrics{Violations: oracle.Violations{StuckKey: oracle.Tally{Unknown: true}}}
	check.False(t, (Threshold{Figure: "stuck_key.count", Op: "=="}).Met(unseen), "what nobody sees is 0")
	for _, name := range FigureNames() {
		_, known := (Metrics{}).Figures()[name]
		check.True(t, known || !(Threshold{Figure: name, Op: ">="}).Met(Metrics{}), "%s of nothing is met", name)
	}
}

func TestTheHistogramHasEachPercentile(t *testing.T) {
	h := newHistogram()
	for i := 1; i <= 10_000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	l := h.latency()
	for name, c := range map[string][2]time.Duration{
		"p50": {l.P50, 5000}, "p90": {l.P90, 9000}, "p95": {l.P95, 9500}, "p99": {l.P99, 9900}, "p99.9": {l.P999, 9990}, "max": {l.Max, 10_000}, "mean": {l.Mean, 5000},
	} {
		want := c[1] * time.Millisecond
		check.AtMost(t, (c[0] - want).Abs(), want/100, "%s", name)
	}
}

func TestDistributionsHaveTheirParameters(t *testing.T) {
	const n = 20_000
	ms := time.Millisecond
	for _, c := range []struct {
		d              Dist
		p50, p99, mean time.Duration
	}{
		{Const(20 * ms), 20 * ms, 20 * ms, 20 * ms},
		{Exp(20 * ms), 13_863 * time.Microsecond, 92_103 * time.Microsecond, 20 * ms},
		{Dist{Shape: ShapeUniform, Low: 10 * ms, High: 50 * ms}, 30 * ms, 49_600 * time.Microsecond, 30 * ms},
		{LogNormal(20*ms, 400*ms), 20 * ms, 400 * ms, 0},
		{Bimodal(5*ms, 500*ms, 0.05), 5 * ms, 500 * ms, 29_750 * time.Microsecond},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		h := newHistogram()
		for range n {
			h.add(c.d.draw(r))
		}
		near := func(got, want time.Duration, by float64) bool {
			return (got - want).Abs() <= time.Duration(by*float64(want))
		}
		if l := h.latency(); !near(l.P50, c.p50, 0.04) || !near(l.P99, c.p99, 0.1) || c.mean > 0 && !near(l.Mean, c.mean, 0.05) {
			t.Errorf("%s: p50 %s, p99 %s, mean %s", c.d, l.P50, l.P99, l.Mean)
		}
	}
}

func TestJitterGoesBothWays(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 500 {
		lag := lag(100*time.Millisecond, 30*time.Millisecond)
		least, most = min(least, lag), max(most, lag)
	}
	check.True(t, least >= 70*time.Millisecond && least <= 75*time.Millisecond && most <= 130*time.Millisecond && most >= 125*time.Millisecond,
		"from %s to %s, want 70 to 130 ms", least, most)
}

// A relative threshold is a threshold once its baseline is known. Until then, no run meets it.
func TestARelativeThresholdNeedsABaseline(t *testing.T) {
	var m Metrics
	m.Latency.Wait = Latency{Count: 1, P99: 105 * time.Millisecond}
	relative := check.Must(ParseThreshold("wait.p99 <= 110% of baseline"))(t)
	check.Equal(t, relative.String(), "wait.p99 <= 110% of baseline")
	check.False(t, relative.Met(m), "a run meets it without a baseline")
	for baseline, met := range map[float64]bool{0.1: true, 0.09: false} {
		at := relative.Against(baseline)
		check.True(t, at.Met(m) == met && !at.Relative, "against %v s: %s, met: %v", baseline, at, !met)
	}
	check.Equal(t, check.Must(ParseThreshold("throughput > 60/m"))(t).Value, 1.0)
	for _, wrong := range []string{"wait.p99 < 110 of baseline", "wait.p99 < x% of baseline", "wait.p99 < -5% of baseline"} {
		_, err := ParseThreshold(wrong)
		check.True(t, err != nil, "%q is a threshold", wrong)
	}
}

func TestNoPercentileIsAboveTheMaximum(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 700, 12345, time.Second, 3 * time.Hour} {
		h := newHistogram()
		h.add(d)
		got := h.latency()
		check.True(t, got.P50 <= got.Max && got.P99 <= got.Max && got.Max == d, "one value, %s: got %+v", d, got)
	}
}

func TestDurationsOutOfRangeAreCounted(t *testing.T) {
	h := newHistogram()
	h.add(-time.Second)
	h.add(3 * time.Hour)
	check.Equal(t, h.hdr.TotalCount(), 2, "counted")
}

func TestEverySecondHasItsOwnFigures(t *testing.T) {
	tl := &timeline{wait: newHistogram()}
	tl.add(100*time.Millisecond, 40*time.Millisecond)
	tl.add(999*time.Millisecond, 60*time.Millisecond)
	tl.add(1*time.Second, time.Millisecond)
	tl.add(4500*time.Millisecond, 2*time.Millisecond)
	got := tl.seconds(4500 * time.Millisecond)
	check.Require(t, len(got) == 5, "%d seconds, want 5: %+v", len(got), got)
	for i, want := range []int64{2, 1, 0, 0, 1} {
		check.Equal(t, got[i].Acquired, want, "second %d: acquired", i)
	}
	check.True(t, got[0].Wait.Max == 60*time.Millisecond && got[1].Wait.Max == time.Millisecond && got[2].Wait == (Latency{}),
		"waits are in the wrong seconds: %+v", got)
}

func TestALateAcquireCountsInTheCurrentSecond(t *testing.T) {
	tl := &timeline{wait: newHistogram()}
	tl.advance(3 * time.Second)
	tl.add(2999*time.Millisecond, time.Millisecond)
	got := tl.seconds(3 * time.Second)
	check.True(t, len(got) == 4 && got[3].Acquired == 1 && got[2].Acquired == 0, "got %+v", got)
}

func TestHistoryKeepsTheNewestSeconds(t *testing.T) {
	tl := &timeline{wait: newHistogram()}
	for i := range 1000 {
		for range i {
			tl.add(time.Duration(i)*time.Second, 0)
		}
	}
	got := tl.seconds(999 * time.Second)
	check.Require(t, len(got) == HistorySeconds, "%d seconds, want %d", len(got), HistorySeconds)
	for i, s := range got {
		want := int64(1000 - HistorySeconds + i)
		check.Require(t, s.Acquired == want, "second %d from the end: %d acquired, want %d", HistorySeconds-i, s.Acquired, want)
	}
}

func TestALongGapIsEmptySeconds(t *testing.T) {
	for _, gap := range []int{1, 2, HistorySeconds - 1, HistorySeconds, HistorySeconds + 1, 100_000} {
		tl := &timeline{wait: newHistogram()}
		tl.add(0, time.Second)
		got := tl.seconds(time.Duration(gap) * time.Second)
		check.Equal(t, len(got), min(gap+1, HistorySeconds), "gap of %d: seconds", gap)
		var sum int64
		for _, s := range got {
			sum += s.Acquired
		}
		check.Equal(t, gap < HistorySeconds, sum == 1, "gap of %d: %d acquisitions in the history", gap, sum)
	}
}

func TestSecondsAreACopy(t *testing.T) {
	tl := &timeline{wait: newHistogram()}
	tl.advance(2 * time.Second)
	got := tl.seconds(2 * time.Second)
	tl.add(2*time.Second, 0)
	tl.advance(200 * time.Second)
	for i, s := range got {
		check.Equal(t, s.Acquired, 0, "second %d changed afterwards", i)
	}
}

// Each second has the counts of the events of that second. An overlap counts when it ends.
func TestASecondCountsWhatItsEventsTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		flawed := flaw{try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			if tries++; tries%9 == 0 {
				return false, errors.New("no luck")
			}
			return true, b.rdb.Set(ctx, p.key, p.token, b.ttl()).Err()
		}}
		r := check.Must(newRun(Servers{Redis: piped(t)}, Scenario{
			Lock: Lock{TTL: 300 * time.Millisecond, Renew: Renew{Off: true}}, Clients: 2, Keys: Keys{N: 1}, Hold: Const(250 * time.Millisecond), Think: Const(70 * time.Millisecond),
			Stages: []Stage{{For: 2500 * time.Millisecond, Clients: 2}, {For: 2 * time.Second, Clients: 5}},
			Faults: []Fault{{At: 1300 * time.Millisecond, Kind: Freeze, For: time.Second}, {At: 3400 * time.Millisecond, Kind: Flush}},
		}, flawed.open))(t)
		want, began := make([]Second, 5), time.Now()
		r.Listen(func(e Event) {
			of := &want[min(int(time.Since(began)/time.Second), 4)]
			switch e.Kind {
			case Acquired:
				of.Acquired++
			case Failed:
				of.Errors++
			case Lost, Expired:
				of.Lost++
			case FaultBegan:
				of.Faults++
			case EventKind(oracle.Overlap):
				of.Overlaps++
			}
		})
		running(t, r)
		<-r.Done()
		got := r.Metrics().Seconds
		for i := range got {
			got[i].Wait, want[i].Clients = Latency{}, []int{2, 2, 5, 5, 5}[i]
			check.Equal(t, got[i], want[i], "second %d", i)
		}
		check.True(t, want[0].Errors+want[1].Errors > 0 && want[1].Faults == 1 && want[2].Lost > 0 && want[3].Overlaps > 0, "the run shows too little: %+v", want)
	})
}
