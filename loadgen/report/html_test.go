package report

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
)

func TestThePageMarksViolationsTimesAndFaults(t *testing.T) {
	for _, c := range []struct {
		kind loadgen.Kind
		set  func(*loadgen.Metrics)
		tick bool
	}{
		{loadgen.Mutex, func(*loadgen.Metrics) {}, true},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Violations.Overlap.Count = 1 }, false},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Violations.WorkOverlap.Count = 1 }, false},
		{"classic/blind-delete", func(m *loadgen.Metrics) { m.Violations.Overlap.Count = 50 }, false},
		{"classic/blind-delete", func(m *loadgen.Metrics) { m.Violations.ForeignUnlocks = 41 }, false},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Violations.AcceptedStaleWrites = 1 }, false},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Acquired = 0 }, false},
	} {
		r := Result{Scenario: loadgen.Scenario{Name: `<script>alert("1 & 2")</script>`, Lock: loadgen.Lock{Kind: c.kind}, Stages: []loadgen.Stage{{For: 2 * time.Second, Clients: 5}, {For: 3 * time.Second}}}}
		r.Metrics.Acquired, r.Metrics.Elapsed = 10, 4500*time.Millisecond
		r.Metrics.Faults = []loadgen.FaultOutcome{{Fault: loadgen.Fault{At: 3 * time.Second, Kind: loadgen.Crash}, Struck: 1}, {Fault: loadgen.Fault{Kind: loadgen.Flush}, Why: "never"}}
		r.Seconds = []loadgen.Second{{Acquired: 10}, {Acquired: 40}, {Acquired: 20}, {Acquired: 30}, {Acquired: 1}}
		c.set(&r.Metrics)
		var page strings.Builder
		check.NoError(t, r.WriteHTML(&page))
		check.Equal(t, strings.Contains(page.String(), "✓"), c.tick, "%s: tick: %s", c.kind, r.Verdict().Text)
		for _, want := range []string{
			`<h1>&lt;script&gt;alert(&#34;1 &amp; 2&#34;)&lt;/script&gt;</h1>`, `Acquired per second (top: 40/s)`,
			`>1 s</text>`, `>4 s</text>`, `">2</text>`, `2: stage 2 at 2 s, for 3 s<`, `">3</text>`, `3: crash of one client at 3 s; struck once<`, // an axis, its marks, and what they mean
			`>flush at the start; never struck: never<`,          // without a mark
			`points="0.0,90.0 200.0,0.0 400.0,60.0 600.0,30.0 "`, // the last second was incomplete
		} {
			check.Contains(t, page.String(), want, "the page")
		}
		check.Equal(t, strings.Count(page.String(), "crash of one client"), 1, "how often the fault is named")
		for _, no := range []string{`">4</text>`, ">5 s<", "<script>", "%!"} {
			check.False(t, strings.Contains(page.String(), no), "the page has %q", no)
		}
	}
}
