package loadgen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"locktop/loadgen/oracle"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(is), len(was)) {
		if i >= len(is) || i >= len(was) || is[i] != was[i] {
			t.Fatalf("%s, line %d (go test ./loadgen -run %s -update, if that is right):\n got %s\nwant %s",
				path, i+1, t.Name(), strings.Join(is[min(i, len(is)):min(i+1, len(is))], ""), strings.Join(was[min(i, len(was)):min(i+1, len(was))], ""))
		}
	}
}

// The test covers the text of a verdict for each figure, with the values 1 and
// 2, for a sound lock and for another.
func TestAVerdictHasASentenceForEachThingThatMustNotHappen(t *testing.T) {
	second := time.Second
	var all strings.Builder
	for _, c := range []struct {
		name string
		set  func(m *Metrics, n int64)
	}{
		{"nothing", func(*Metrics, int64) {}},
		{"nobody", func(m *Metrics, n int64) { m.Acquired, m.Arrivals = 0, n }},
		{"overlap", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Overlap{Count: n, Total: second, Longest: 138 * time.Millisecond}
		}},
		{"excused", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Overlap{Count: n, Excused: n, Total: second, Longest: 2138 * time.Millisecond}
		}},
		{"half excused", func(m *Metrics, n int64) {
			m.Violations.Overlap = oracle.Overlap{Count: 2 * n, Excused: n, Total: second, Longest: 438 * time.Microsecond}
		}},
		{"work", func(m *Metrics, n int64) {
			m.Violations.WorkOverlap = oracle.Overlap{Count: n, Total: second, Longest: 138 * time.Millisecond}
		}},
		{"both", func(m *Metrics, n int64) {
			m.Violations.Overlap, m.Violations.WorkOverlap = oracle.Overlap{Count: n, Total: second, Longest: 9 * time.Millisecond}, oracle.Overlap{Count: n + 1, Total: second, Longest: 10 * time.Millisecond}
		}},
		{"untold", func(m *Metrics, n int64) { m.Violations.Untold = n }},
		{"lost", func(m *Metrics, n int64) { m.Violations.LostAlone = n }},
		{"overtaken", func(m *Metrics, n int64) { m.Violations.Overtaken = n }},
		{"number", func(m *Metrics, n int64) { m.Violations.NumberFell = n }},
		{"late", func(m *Metrics, n int64) { m.Violations.LateWork.Count = n }},
		{"fenced", func(m *Metrics, n int64) { m.Violations.Fenced = n }},
		{"corrupt", func(m *Metrics, n int64) { m.Violations.AcceptedStaleWrites = n }},
		{"foreign", func(m *Metrics, n int64) { m.Violations.ForeignUnlocks = n }},
		{"stuck", func(m *Metrics, n int64) { m.Violations.Stuck = n }},
		{"short of clients", func(m *Metrics, n int64) { m.Arrivals, m.LateArrivals, m.Backlog = 500-n, 4, n }},
		{"short of CPU", func(m *Metrics, n int64) { m.Stall = Stall{second, time.Duration(49+n) * time.Millisecond} }},
		{"not short of CPU", func(m *Metrics, n int64) { m.Stall = Stall{second, time.Duration(47+n) * time.Millisecond} }},
		{"outage", func(m *Metrics, n int64) {
			m.Outage = Outage{Total: time.Duration(n) * second, Longest: second, Error: "gone"}
		}},
		{"another server", func(m *Metrics, n int64) { m.Outage.Lost = int(n) }},
		{"threshold", func(m *Metrics, n int64) { m.Latency.Held.Count, m.Latency.Held.Max = 1, time.Duration(n)*second }},
	} {
		for _, kind := range []Kind{Mutex, "classic/getset"} {
			for n := range int64(2) {
				m := Metrics{Counts: Counts{Arrivals: 500, Acquired: 500}}
				c.set(&m, n+1)
				v := m.Verdict(Scenario{
					Lock: Lock{Kind: kind}, Rate: 10,
					Thresholds: []Threshold{{"held.max", "<", 2}}, Expect: []Threshold{{"arrivals.count", ">", 1}},
				})
				if c.name != "threshold" && m.Latency.Held.Count == 0 && len(v.Missed) == 1 {
					v.Missed = nil // nothing was held
				}
				fmt.Fprintf(&all, "%s %d, %s: safe %t, harmless %t, expected %t\n\t%s\n", c.name, n+1, kind, v.Safe, v.Harmless, v.Expected, v.Text)
				for _, more := range append(v.Missed, v.Gaps...) {
					fmt.Fprintf(&all, "\t+ %s\n", more)
				}
			}
		}
	}
	golden(t, "verdicts.txt", all.String())
}
