package loadgen

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"locktop/internal/check"
	"locktop/loadgen/oracle"
)

// joined are runs on the same keys, as of several agents, and the events of all.
type joined struct {
	runs   []*Run
	mu     sync.Mutex
	events []Event
}

// join starts n runs on the same keys of a server in the bubble of the test.
func join(t *testing.T, n int, s Scenario) *joined {
	t.Helper()
	rdb := piped(t)
	s.Keys.Prefix = "p:"
	shares := check.Must(s.Shares(n))(t)
	all := &joined{}
	for i, share := range shares {
		r := check.Must(New(Servers{Redis: rdb}, share))(t)
		r.Join(i + 1)
		r.Listen(func(e Event) {
			all.mu.Lock()
			defer all.mu.Unlock()
			all.events = append(all.events, e)
		})
		all.runs = append(all.runs, running(t, r))
	}
	return all
}

// sent returns a snapshot as another process gets it.
func sent(t *testing.T, r *Run) Snapshot {
	t.Helper()
	text := check.Must(json.Marshal(r.Snapshot()))(t)
	var s Snapshot
	check.NoError(t, json.Unmarshal(text, &s))
	return s
}

func add(t *testing.T, m *Merger, agent int, s Snapshot) {
	t.Helper()
	check.NoError(t, m.Add(agent, s))
}

// addTo adds a snapshot of each run.
func (j *joined) addTo(t *testing.T, m *Merger) {
	t.Helper()
	for i, r := range j.runs {
		add(t, m, i+1, sent(t, r))
	}
}

func TestMergedSnapshotsAreTheFiguresOfAllRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		all := join(t, n, Scenario{
			Clients: 10, Keys: Keys{N: 2}, Lock: Lock{TTL: 3 * time.Second}, Hold: Exp(20 * time.Millisecond), Think: Exp(30 * time.Millisecond), Patience: 300 * time.Millisecond, Seed: 7,
			Faults: []Fault{{At: 2500 * time.Millisecond, Kind: Crash, Clients: 4, For: 2 * time.Second}},
		})
		var m Merger
		for range 6 {
			time.Sleep(time.Second)
			all.addTo(t, &m)
			merged := m.Metrics()
			checkSums(t, merged)
			check.True(t, merged.Running && merged.Clients.Total == 10 && len(merged.Seconds) == int(merged.Elapsed/time.Second)+1,
				"%d seconds after %s", len(merged.Seconds), merged.Elapsed)
		}
		for _, r := range all.runs {
			stop(t, r)
		}
		time.Sleep(time.Second)
		all.addTo(t, &m)
		got := m.Metrics()
		checkSums(t, got)

		want, began := Counts{}, time.Time{}
		sums := newHistograms()
		for i, r := range all.runs {
			one := r.Metrics()
			addCounts(&want, one.Counts)
			if i == 0 || one.Began.Before(began) {
				began = one.Began
			}
			for i, h := range r.newest().recorder.all() {
				sums.all()[i].hdr.Merge(h.hdr)
				sums.all()[i].max = max(sums.all()[i].max, h.max)
				sums.all()[i].censored += h.censored
			}
			of := m.Of(i + 1)
			if of.Counts != one.Counts || of.Latency.Wait != one.Latency.Wait || of.Latency.Held != one.Latency.Held || !reflect.DeepEqual(of.Clients, one.Clients) {
				t.Errorf("agent %d: %+v, want %+v", i+1, of, one)
			}
		}
		if got.Counts != want || got.Running || !got.Began.Equal(began) || want.Acquired < 100 || want.TimedOut == 0 || want.Abandoned != 4 {
			t.Errorf("got  %+v\nwant %+v", got.Counts, want)
		}
		check.Equal(t, got.Latency, sums.latencies(), "the latencies")
		check.Equal(t, got.Latency.Wait.Max, time.Duration(max(all.longest(Acquired), all.longest(TimedOut))), "the longest wait is")
		perSecond := map[int]int64{}
		for _, e := range all.events {
			if e.Kind == Acquired {
				perSecond[int(e.At.Sub(began)/time.Second)]++
			}
		}
		for i, s := range got.Seconds {
			check.True(t, s.Acquired == perSecond[i] && s.Wait.Count >= s.Acquired,
				"second %d: %d acquired, %d waits; the events say %d", i, s.Acquired, s.Wait.Count, perSecond[i])
		}
		check.Between(t, got.Fairness.Jain, 0.5, 1, "Jain")
	})
}

func (j *joined) longest(kind EventKind) time.Duration {
	longest := time.Duration(0)
	for _, e := range j.events {
		if e.Kind == kind {
			longest = max(longest, e.Took)
		}
	}
	return longest
}

// The clients of a lost agent have crashed: their holds are abandoned, their attempts cut
// off, and the sums hold.
func TestTheClientsOfALostAgentHaveCrashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := join(t, 2, Scenario{Clients: 8, Keys: Keys{N: 1}, Hold: Const(100 * time.Millisecond), Think: Const(time.Millisecond)})
		var m Merger
		m.Lost(2) // before its first snapshot
		time.Sleep(2*time.Second + 50*time.Millisecond)
		all.addTo(t, &m)
		before, two := m.Metrics(), m.Of(2)
		check.Require(t, two.Clients.Waiting != 0, "no client of agent 2 waits: %+v", two.Clients)
		m.Lost(2)
		got := m.Metrics()
		for _, m := range []Metrics{got, m.Of(2)} {
			if m.Arrivals != m.Acquired+m.TimedOut+m.Refused+m.Errors+m.CutOff+int64(m.Clients.Waiting) ||
				m.Acquired != m.Released+m.Expired+m.Lost+m.Unconfirmed+m.Abandoned+int64(m.Clients.Holding) ||
				m.Clients.Total != m.Clients.Idle+m.Clients.Waiting+m.Clients.Holding+m.Clients.Dead || m.Clients.Total != len(m.Clients.States) {
				t.Errorf("the sums do not hold: %+v", m)
			}
		}
		if got.Clients.Dead != 4 || got.Clients.Total != 8 || !got.Running || got.Arrivals != before.Arrivals || got.Acquired != before.Acquired ||
			got.CutOff != before.CutOff+int64(two.Clients.Waiting) || got.Abandoned != before.Abandoned+int64(two.Clients.Holding) {
			t.Errorf("before: %+v %+v\nafter: %+v %+v", before.Counts, before.Clients, got.Counts, got.Clients)
		}
		time.Sleep(time.Second)
		add(t, &m, 1, sent(t, all.runs[0]))
		if later := m.Metrics(); len(later.Seconds) <= len(got.Seconds) {
			t.Errorf("the seconds stop with the lost agent: %d, then %d", len(got.Seconds), len(later.Seconds))
		}
	})
}

func TestMergedTimesAreThoseOfTheCommonClock(t *testing.T) {
	began := time.Unix(1000, 0)
	var m Merger
	for agent, behind := range map[int]time.Duration{1: 5 * time.Second, 2: -5 * time.Second} {
		s := Snapshot{ClockBehind: behind, Metrics: Metrics{Began: began.Add(-behind)}}
		side := oracle.Side{Client: agent, From: began.Add(time.Second - behind)}
		s.Metrics.Violations.Evidence = []oracle.Evidence{{Violation: oracle.LateWork, At: began.Add(2*time.Second - behind), First: side}}
		add(t, &m, agent, s)
	}
	got := m.Metrics()
	check.Require(t, got.Began.Equal(began) && len(got.Violations.Evidence) == 2,
		"it began at %s, evidence %+v", got.Began, got.Violations.Evidence)
	for _, e := range got.Violations.Evidence {
		check.True(t, e.At.Equal(began.Add(2*time.Second)) && e.First.From.Equal(began.Add(time.Second)), "%+v", e)
	}
}

func TestTheEndOfAWarmUpReachesTheMergedFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := join(t, 2, Scenario{Clients: 4, Keys: Keys{N: 4}, Hold: Const(time.Millisecond), Think: Const(49 * time.Millisecond), Warmup: 3 * time.Second, Duration: 6 * time.Second})
		var m Merger
		for range 6 {
			time.Sleep(time.Second + time.Millisecond)
			all.addTo(t, &m)
		}
		for _, r := range all.runs {
			<-r.Done()
		}
		all.addTo(t, &m)
		got, sum := m.Metrics(), int64(0)
		checkSums(t, got)
		for _, s := range got.Seconds {
			sum += s.Acquired
		}
		check.True(t, got.Elapsed.Round(time.Second) == 3*time.Second && len(got.Seconds) <= 4 && sum >= got.Acquired-4 && sum <= got.Acquired,
			"%s: %d acquired, %d in %d seconds", got.Elapsed, got.Acquired, sum, len(got.Seconds))
	})
}

// A snapshot that no run sends is refused, and changes nothing.
func TestAGarbledSnapshotChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := join(t, 2, Scenario{Clients: 4, Keys: Keys{N: 1}, Hold: Const(50 * time.Millisecond), Think: Const(50 * time.Millisecond)})
		var m Merger
		time.Sleep(2500 * time.Millisecond)
		all.addTo(t, &m)
		before := m.Metrics()
		time.Sleep(time.Second)
		newer := sent(t, all.runs[0])
		wide := hdrhistogram.New(1, 1<<50, 1)
		check.NoError(t, wide.RecordValue(1<<49))
		outside := check.Must(wide.Encode(hdrhistogram.V2CompressedEncodingCookieBase))(t)
		for name, garble := range map[string]func(*Snapshot){
			"no base64":          func(s *Snapshot) { s.Latencies[0].Counts = "!" + s.Latencies[0].Counts },
			"half a histogram":   func(s *Snapshot) { s.Latencies[2].Counts = s.Latencies[2].Counts[:len(s.Latencies[2].Counts)/2] },
			"other bounds":       func(s *Snapshot) { s.Latencies[1].Counts = string(outside) },
			"too long":           func(s *Snapshot) { s.Latencies[4].Counts = strings.Repeat("A", 1<<20) },
			"a bad second":       func(s *Snapshot) { s.Seconds[len(s.Seconds)-1].Wait.Counts = "AAAA" },
			"no arrivals":        func(s *Snapshot) { s.Metrics.Arrivals = 0 },
			"more holds":         func(s *Snapshot) { s.Metrics.Released++ },
			"more clients":       func(s *Snapshot) { s.Metrics.Clients.Total++ },
			"a state without":    func(s *Snapshot) { s.Metrics.Clients.States = s.Metrics.Clients.States[1:] },
			"a state of no name": func(s *Snapshot) { s.Metrics.Clients.States[0] = Dead + 1 },
		} {
			bad := newer
			bad.Seconds = slices.Clone(newer.Seconds)
			bad.Metrics.Clients.States = slices.Clone(newer.Metrics.Clients.States)
			garble(&bad)
			for _, agent := range []int{1, 3} {
				check.True(t, m.Add(agent, bad) != nil, "%s: no error", name)
			}
			after := m.Metrics()
			check.True(t, reflect.DeepEqual(before, after), "%s: before %+v\nafter %+v", name, before, after)
		}
		add(t, &m, 1, newer)
		check.True(t, m.Metrics().Acquired > before.Acquired, "a good snapshot has no effect")
	})
}

func TestMergedOutagesAndStallsAreTheLargest(t *testing.T) {
	parts := []Metrics{
		{Outage: Outage{Total: 3 * time.Second, Longest: time.Second, Error: "a"}, Stall: Stall{Total: 5 * time.Second, Longest: time.Second}},
		{Outage: Outage{Total: time.Second, Longest: 2 * time.Second, Lost: 1, Error: "b"}, Stall: Stall{Total: 4 * time.Second, Longest: 3 * time.Second}},
		{Stall: Stall{Total: time.Second, Longest: time.Second}},
	}
	for range parts {
		parts = append(parts[1:], parts[0])
		var all Metrics
		for _, one := range parts {
			all.add(one)
		}
		check.Equal(t, all.Outage, Outage{Total: 3 * time.Second, Longest: 2 * time.Second, Lost: 1, Error: "a"})
		check.Equal(t, all.Stall, Stall{Total: 5 * time.Second, Longest: 3 * time.Second})
	}
}
