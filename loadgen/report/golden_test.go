package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

// fill sets every number in a value to a distinct one.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Int, reflect.Int64:
		*n += 7
		v.SetInt(int64(*n))
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(int64(*n) * int64(time.Millisecond))
		}
	case reflect.Float64:
		*n += 7
		v.SetFloat(float64(*n) / 8)
	}
}

// when returns v, or zero if the condition is false.
func when[V int64 | time.Duration](condition bool, v V) V {
	if condition {
		return v
	}
	return 0
}

// fullReport returns a report in which every figure is present and distinct.
func fullReport(t *testing.T) Result {
	t.Helper()
	began := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC)
	r := Result{Scenario: example(t), Unclean: "not\x1bfree"}
	r.Scenario.Arrivals, r.Scenario.Warmup, r.Scenario.Depth, r.Scenario.Reads = loadgen.Poisson, 5*time.Second, 3, 0.25
	n := 100
	m := &r.Metrics
	for _, p := range []any{
		&m.Elapsed, &m.Clients.Total, &m.Clients.Idle, &m.Clients.Waiting, &m.Clients.Holding, &m.Clients.Dead, &m.Arrivals, &m.LateArrivals, &m.Backlog, &m.Acquired,
		&m.Released, &m.Expired, &m.Lost, &m.Unconfirmed, &m.Abandoned, &m.TimedOut, &m.Refused, &m.Errors, &m.CutOff,
		&m.Latency.Wait, &m.Latency.Release, &m.Latency.Held, &m.Latency.Handoff, &m.Latency.RenewLate, &m.Cost.Attempts, &m.Cost.Renewals, &m.Cost.Commands, &m.Utilisation,
		&m.Fairness, &m.Cost.CPU, &m.Outage, &m.Stall,
	} {
		fill(reflect.ValueOf(p).Elem(), &n)
	}
	for i, k := range oracle.Kinds() {
		*k.Of(&m.Violations) = oracle.Tally{Count: int64(600 + 7*i), Excused: when[int64](k.Excusable, 5), Total: when(k.Lasts, time.Hour), Longest: when(k.Lasts, time.Duration(600+7*i)*time.Millisecond)}
	}
	m.Began, m.Elapsed, m.Running = began, 31*time.Second+400*time.Millisecond, false
	m.Utilisation, m.Fairness.Jain = 0.625, 0.875
	m.LastErr = "the \x1bserver"
	m.Latency.RenewLate = loadgen.Latency{} // nothing was renewed
	for i, f := range r.Scenario.Faults {
		m.Faults = append(m.Faults, loadgen.FaultOutcome{Fault: f, Struck: 3 * i, Why: []string{"no client held a lock any more", ""}[i]})
	}
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	m.Violations.Unjudged = 99
	m.Violations.Explained = []oracle.Explained{
		{Violation: oracle.Overlap, Cause: "flush", Why: "the lock was deleted", Count: 3},
		{Violation: oracle.UnexplainedLoss, Cause: "freeze", Why: "it could not renew", Count: 12, Client: "client-1", Clients: 1},
	}
	m.Violations.Evidence = []oracle.Evidence{
		{
			Violation: oracle.Overlap, Key: "k\x1b1", At: at(1500), Length: 20 * time.Millisecond,
			First:  oracle.Side{Client: 1, Token: "t1", Fence: 5, From: at(1000), To: at(1600), Deadline: at(1700)},
			Second: oracle.Side{Client: 2, Token: "t2", Fence: 6, Reader: true, From: at(1500), To: at(1520), Deadline: at(2500)}, Cause: "freeze",
		},
		{
			Violation: oracle.Overlap, Key: "k3", At: at(1800), Length: 10 * time.Millisecond, First: oracle.Side{Client: 1, From: at(1700), To: at(1810), Deadline: at(2700)},
			Others: []oracle.Side{{Client: 2, From: at(1750), To: at(1810), Deadline: at(2750)}}, Second: oracle.Side{Client: 3, From: at(1800), To: at(1810), Deadline: at(2800)},
		},
		{Violation: oracle.StuckKey, Key: "k2", At: at(2500), Length: 9 * time.Second},
	}
	for i := range 31 {
		s := loadgen.Second{Acquired: int64(10 * (i%7 + 1))}
		fill(reflect.ValueOf(&s.Wait).Elem(), &n)
		r.Seconds = append(r.Seconds, s)
	}
	return r
}

func TestEachFormOfAReportHasEveryFigure(t *testing.T) {
	r := fullReport(t)
	plain := func(s string) string { return strings.ReplaceAll(s, "\x1b", "?") }
	var text, page, seconds, document bytes.Buffer
	check.NoError(t, r.WriteText(&text, plain))
	check.NoError(t, r.WriteHTML(&page))
	check.NoError(t, r.WriteCSV(&seconds))
	raw := check.Must(json.Marshal(r))(t)
	check.NoError(t, json.Indent(&document, raw, "", " "))
	golden.Check(t, "report.txt", text.String())
	golden.Check(t, "report.html", strings.Replace(page.String(), htmlpage.Style, "(style)\n", 1))
	golden.WellFormed(t, page.String())
	golden.Check(t, "report.csv", seconds.String())
	golden.Check(t, "report.json", document.String())
	check.False(t, strings.Contains(text.String(), "\x1b"), "the text has bytes of the server in it")
}

func TestTheAxisOfAPageHasRoomForItsLabels(t *testing.T) {
	for seconds, want := range map[int]string{
		1: "1", 12: "1 2 3 4 5 6 7 8 9 10 11 12", 13: "1 3 5 7 9 11 13", 24: "1 3 5 7 9 11 13 15 17 19 21 23", 25: "1 4 7 10 13 16 19 22 25",
	} {
		r := Result{Seconds: make([]loadgen.Second, seconds)}
		r.Metrics.Elapsed = time.Duration(seconds) * time.Second
		var page strings.Builder
		check.NoError(t, r.WriteHTML(&page))
		chart, _, _ := strings.Cut(page.String(), "</svg>")
		var labels []string
		for label := range strings.SplitSeq(chart, `y="136">`) {
			if text, found := strings.CutSuffix(strings.SplitN(label, "</text>", 2)[0], " s"); found {
				labels = append(labels, text)
			}
		}
		check.Equal(t, strings.Join(labels, " "), want, "%d seconds: labels", seconds)
	}
}

// Overlaps that a witness has seen make a sound lock unsafe, but for those that it excuses. A witness that has missed something shows less.
func TestAWitnessCountsInTheVerdict(t *testing.T) {
	for _, c := range []struct {
		kind     loadgen.Kind
		overlaps int64
		excused  int64
		unseen   int64
		err      error
		safe     bool
		gaps     int
	}{
		{loadgen.Mutex, 0, 0, 0, nil, true, 0},
		{loadgen.Mutex, 1, 0, 0, nil, false, 0},
		{loadgen.Mutex, 1, 1, 0, nil, true, 0},
		{"classic/getset", 1, 0, 0, nil, true, 0},
		{loadgen.Mutex, 0, 0, 3, errors.New("lost"), true, 2},
	} {
		r := Result{Scenario: loadgen.Scenario{Lock: loadgen.Lock{Kind: c.kind}}, Witness: &witness.Results{Counts: witness.Counts{Crossings: oracle.Crossings{Overlaps: c.overlaps, Excused: c.excused}}, Unseen: c.unseen, Err: c.err}}
		r.Metrics.Acquired = 1
		if v := r.Verdict(); v.Safe != c.safe || len(v.Gaps) != c.gaps || !strings.Contains(v.Text(), "Witness: "+humanize.Plural(c.overlaps, "overlap")) || c.overlaps > 0 && v.Harmless ||
			strings.Contains(v.Text(), "Two clients were inside at once, as the order of the witness proves. Witness: ") != (c.overlaps > 0) || strings.Contains(v.Text(), "No two clients") != (c.overlaps == 0) {
			t.Errorf("%+v: %+v", c, v)
		}
	}
}

// A failed proof is reported for every kind of lock and makes a sound lock
// unsafe. A proof that is not complete proves nothing, and a run without a record has none.
func TestAProofCountsInTheVerdict(t *testing.T) {
	for _, c := range []struct {
		kind           loadgen.Kind
		proof          oracle.Proof
		safe, harmless bool
		says           string
		linearizable   string
	}{
		{loadgen.Mutex, oracle.Proof{Holds: 9, Known: true, Sound: true}, true, true, "is that of a lock.", `"linearizable":true`},
		{loadgen.Mutex, oracle.Proof{Holds: 9, Known: true}, false, false, "is not that of a lock", `"linearizable":false`},
		{loadgen.Mutex, oracle.Proof{Holds: 9, Sound: true}, true, true, "is not proved", ""},
		{loadgen.Mutex, oracle.Proof{Known: true, Sound: true}, true, true, "", ""},
		{"classic/getset", oracle.Proof{Holds: 9, Known: true}, true, false, "is not that of a lock", `"linearizable":false`},
	} {
		r := Result{Scenario: loadgen.Scenario{Lock: loadgen.Lock{Kind: c.kind}}, Metrics: loadgen.Metrics{Counts: loadgen.Counts{Acquired: 1}}, Proof: &c.proof}
		v, document := r.Verdict(), string(check.Must(json.Marshal(r))(t))
		check.True(t, v.Safe == c.safe && v.Harmless == c.harmless && len(v.Gaps) == 0, "%s with %+v: %+v", c.kind, c.proof, v)
		check.True(t, strings.Contains(v.Text(), "The history of 9 holds") == (c.says != "") && strings.Contains(v.Text(), c.says), "%+v: %s", c.proof, v.Text())
		check.True(t, strings.Contains(document, `"proof":{`) == (c.linearizable != "") && strings.Contains(document, c.linearizable), "%+v: %s", c.proof, document)
	}
}

// A history has the times of the replies. Where these may have been late, it proves no more than the overlaps.
func TestAProofOfLateRepliesIsNotTold(t *testing.T) {
	m := loadgen.Metrics{Counts: loadgen.Counts{Acquired: 9}, Stall: loadgen.Stall{Longest: 137 * time.Millisecond}}
	m.Violations.Overlap = oracle.Tally{Count: 1, Longest: 35 * time.Millisecond}
	r := Result{Scenario: loadgen.Scenario{Lock: loadgen.Lock{Kind: loadgen.Exec}}, Metrics: m, Proof: &oracle.Proof{Holds: 9, Known: true}}
	v, document := r.Verdict(), string(check.Must(json.Marshal(r))(t))
	check.True(t, !v.Safe && v.Doubtful && !strings.Contains(v.Text()+document, "is not that of a lock"), "%+v, %s", v, document)
}

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
		{"classic/blind-delete", func(m *loadgen.Metrics) { m.Violations.ForeignUnlock.Count = 41 }, false},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Violations.StaleWriteAccepted.Count = 1 }, false},
		{loadgen.Mutex, func(m *loadgen.Metrics) { m.Acquired = 0 }, false},
	} {
		r := Result{Scenario: loadgen.Scenario{
			Name: `<script>alert("1 & 2")</script>`, Lock: loadgen.Lock{Kind: c.kind},
			Stages: []loadgen.Stage{{For: 2 * time.Second, Clients: 5}, {For: 3 * time.Second}},
		}}
		r.Metrics.Acquired, r.Metrics.Elapsed = 10, 4500*time.Millisecond
		r.Metrics.Faults = []loadgen.FaultOutcome{{Fault: loadgen.Fault{At: 3 * time.Second, Kind: loadgen.Crash}, Struck: 1}, {Fault: loadgen.Fault{Kind: loadgen.Flush}, Why: "never"}}
		r.Seconds = []loadgen.Second{{Acquired: 10}, {Acquired: 40}, {Acquired: 20}, {Acquired: 30}, {Acquired: 1}}
		c.set(&r.Metrics)
		var page strings.Builder
		check.NoError(t, r.WriteHTML(&page))
		check.Equal(t, strings.Contains(page.String(), "✓"), c.tick, "%s: tick: %s", c.kind, r.Verdict().Text())
		for _, want := range []string{
			`<h1>&lt;script&gt;alert(&#34;1 &amp; 2&#34;)&lt;/script&gt;</h1>`, `Acquired per second (top: 40/s)`,
			`>1 s</text>`, `>4 s</text>`, `">2</text>`, `2: stage 2 at 2 s: {for: 3s}<`, `">3</text>`, `3: crash of one client at 3 s; struck once<`, // an axis, its marks, and what they mean
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
