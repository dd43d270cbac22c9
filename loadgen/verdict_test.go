package loadgen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/loadgen/oracle"
)

// The test covers the text of a verdict for each figure, with the values 1 and
// 2, for a sound lock and for another.
func TestAVerdictHasASentenceForEachViolation(t *testing.T) {
	second := time.Second
	var all strings.Builder
	type figures struct {
		name string
		set  func(m *Metrics, n int64)
	}
	cases := []figures{
		{"nothing", func(*Metrics, int64) {}},
		{"nobody", func(m *Metrics, n int64) { m.Acquired, m.Arrivals = 0, n }},
		{"overlap", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Tally{Count: n, Total: second, Longest: 138 * time.Millisecond}
		}},
		{"excused", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Tally{Count: n, Excused: n, Total: second, Longest: 2138 * time.Millisecond}
		}},
		{"half excused", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Tally{Count: 2 * n, Excused: n, Total: second, Longest: 438 * time.Microsecond}
		}},
		{"work", func(m *Metrics, n int64) {
			m.Violations.WorkOverlap = oracle.Tally{Count: n, Total: second, Longest: 138 * time.Millisecond}
		}},
		{"both", func(m *Metrics, n int64) {
			m.Violations.Overlap, m.Violations.WorkOverlap = oracle.Tally{Count: n, Total: second, Longest: 9 * time.Millisecond}, oracle.Tally{Count: n + 1, Total: second, Longest: 10 * time.Millisecond}
		}},
		{"unjudged", func(m *Metrics, n int64) { m.Violations.Unjudged = 249 + n }},
		{"explained", func(m *Metrics, n int64) {
			m.Violations.Explained = []oracle.Explained{{Violation: oracle.UnexplainedLoss, Cause: "freeze", Count: n, Client: "client-1", Clients: int(n)}}
		}},
		{"stuck", func(m *Metrics, n int64) { m.Violations.StuckKey = oracle.Tally{Count: n, Excused: n} }},
		{"stuck without a fault", func(m *Metrics, n int64) { m.Violations.StuckKey = oracle.Tally{Count: 2*n - 1, Excused: n - 1} }},
		{"agents", func(m *Metrics, n int64) { m.Oracles = 1 + int(n) }},
		{"work of agents", func(m *Metrics, n int64) {
			m.Oracles = int(n)
			m.Violations.WorkOverlap = oracle.Tally{Count: 1, Longest: 138 * time.Millisecond}
		}},
		{"short of clients", func(m *Metrics, n int64) { m.Arrivals, m.LateArrivals, m.Backlog = 500-n, 4, n }},
		{"short of CPU", func(m *Metrics, n int64) { m.Stall = Stall{second, time.Duration(49+n) * time.Millisecond} }},
		{"not short of CPU", func(m *Metrics, n int64) { m.Stall = Stall{second, time.Duration(47+n) * time.Millisecond} }},
		{"outage", func(m *Metrics, n int64) {
			m.Outage = Outage{Total: time.Duration(n) * second, Longest: second, Error: "gone"}
		}},
		{"another server", func(m *Metrics, n int64) { m.Outage.Lost = int(n) }},
		{"threshold", func(m *Metrics, n int64) { m.Latency.Held.Count, m.Latency.Held.Max = 1, time.Duration(n)*second }},
	}
	for _, k := range oracle.Kinds() {
		if !k.Lasts && !k.Excusable || k.ID == oracle.LateWork {
			cases = append(cases, figures{string(k.ID), func(m *Metrics, n int64) { k.Of(&m.Violations).Count = n }})
		}
	}
	for _, c := range cases {
		for _, kind := range []Kind{Mutex, "classic/getset"} {
			for n := range int64(2) {
				m := Metrics{Counts: Counts{Arrivals: 500, Acquired: 500}}
				c.set(&m, n+1)
				v := m.Verdict(Scenario{
					Lock: Lock{Kind: kind}, Rate: 10,
					Thresholds: []Threshold{{Figure: "held.max", Op: "<", Value: 2}}, Expect: []Threshold{{Figure: "arrivals.count", Op: ">", Value: 1}},
				})
				if c.name != "threshold" && m.Latency.Held.Count == 0 && len(v.Missed) == 1 {
					v.Missed = nil // nothing was held
				}
				fmt.Fprintf(&all, "%s %d, %s: safe %t, harmless %t, expected %t\n\t%s\n", c.name, n+1, kind, v.Safe, v.Harmless, v.Expected, v.Text())
				for _, more := range append(v.Missed, v.Gaps...) {
					fmt.Fprintf(&all, "\t+ %s\n", more)
				}
			}
		}
	}
	golden.Check(t, "verdicts.txt", all.String())
}

// A reply of a client process that is read late makes its lease end late. Only an overlap that is
// longer than every delay of the generator proves that two clients held the lock.
func TestAnOverlapShorterThanAStallProvesNothingAboutAClientProcess(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		stall  time.Duration
		doubt  bool
		gaps   int
		reason string
	}{
		{Exec, 137 * time.Millisecond, true, 1, "a reply may have been late"},
		{Exec, 35 * time.Millisecond, false, 0, "no reply was as late"},
		{Mutex, 137 * time.Millisecond, false, 0, "the times of our own leases are exact"},
	} {
		m := Metrics{Counts: Counts{Arrivals: 500, Acquired: 500}, Stall: Stall{c.stall, c.stall}}
		m.Violations.Overlap = oracle.Tally{Count: 1, Total: 35 * time.Millisecond, Longest: 35 * time.Millisecond}
		v := m.Verdict(Scenario{Lock: Lock{Kind: c.kind}})
		check.True(t, !v.Safe && v.Doubtful == c.doubt && len(v.Gaps) == c.gaps, "%s: %+v", c.reason, v)
	}
}
