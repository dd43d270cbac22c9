// Package report writes what a run of package loadgen showed: as text, JSON, CSV and
// HTML, as percentiles of HdrHistogram, as a trace and for Prometheus.
package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"locktop/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// Result describes a run that is over.
type Result struct {
	Scenario loadgen.Scenario
	Metrics  loadgen.Metrics
	Seconds  []loadgen.Second // of the whole run
	Proof    *oracle.Proof    // nil = not requested
	Unclean  string           // error of the release at the end, "" if there is none; may hold bytes from the server
}

// Verdict returns the verdict on the metrics and the proof.
func (r Result) Verdict() loadgen.Verdict {
	v := r.Metrics.Verdict(r.Scenario)
	if r.Proof != nil {
		v.Safe = v.Safe && (r.Proof.Sound || !r.Proof.Known || !r.Scenario.Lock.Kind.Sound())
		v.Text += " Checked: " + r.Proof.String() + "."
		v.Harmless = v.Harmless && r.Proof.Sound
		if !r.Proof.Known || r.Proof.LeftOut > 0 {
			v.Gaps = append(v.Gaps, "The proof is not complete: "+r.Proof.String()+".")
		}
	}
	return v
}

// SecondsRecorder collects all seconds of a run. [loadgen.Metrics] has only the newest.
// The zero value is empty.
type SecondsRecorder struct{ seconds []loadgen.Second }

// Add adds the finished seconds of m. Call it more than once per
// [loadgen.HistorySeconds] seconds.
func (c *SecondsRecorder) Add(m loadgen.Metrics) {
	past := m.Seconds
	if m.Running && len(past) > 0 {
		past = past[:len(past)-1]
	}
	whole := int(m.Elapsed / time.Second)
	if !m.Running {
		whole++ // the last second was cut short
	}
	first := whole - len(past)
	for i, s := range past {
		if first+i >= len(c.seconds) {
			c.seconds = append(c.seconds, s)
		}
	}
}

// Seconds returns the collected seconds, oldest first.
func (c *SecondsRecorder) Seconds() []loadgen.Second { return c.seconds }

// WriteCSV writes one line per second of the run.
func (r Result) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"second", "acquired", "wait_p50_ms", "wait_p90_ms", "wait_p99_ms", "wait_max_ms"}}
	number := func(d time.Duration) string { return strconv.FormatFloat(ms(d), 'f', -1, 64) }
	for i, s := range r.Seconds {
		rows = append(rows, []string{
			strconv.Itoa(i + 1), strconv.FormatInt(s.Acquired, 10),
			number(s.Wait.P50), number(s.Wait.P90), number(s.Wait.P99), number(s.Wait.Max),
		})
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write the seconds: %w", err)
	}
	return nil
}

// WriteHistogram writes the distribution of the waits of a run in milliseconds, in the
// percentile format of HdrHistogram (.hgrm).
func WriteHistogram(w io.Writer, run *loadgen.Run) error {
	h := run.Histograms()
	if h == nil {
		return nil
	}
	if _, err := h.Wait.PercentilesPrint(w, 5, float64(time.Millisecond)); err != nil {
		return fmt.Errorf("write the histogram: %w", err)
	}
	return nil
}

func name(s loadgen.Scenario) string {
	if s.Name == "" {
		return "load"
	}
	return s.Name
}

// load describes the clients and the keys in a few words.
func load(s loadgen.Scenario) string {
	keys := humanize.Plural(s.Keys.N, "key")
	if s.Keys.N == 1 || s.Keys.Pick == loadgen.PickOne {
		keys = "one key"
	}
	if s.Rate > 0 {
		return fmt.Sprintf("%g arrivals/s on %s", s.Rate, keys)
	}
	return fmt.Sprintf("%s on %s", humanize.Plural(s.Clients, "client"), keys)
}

// settings returns the settings of the run as text.
func settings(s loadgen.Scenario) []pair {
	all := []pair{{"clients", fmt.Sprintf("%s, %s", humanize.Count(s.Clients), sharing(s))}, {"keys", loadgen.YAML(s.Keys)}}
	if s.Rate > 0 {
		all = append(all, pair{"rate", loadgen.FormatRate(s.Rate) + ", " + string(s.Arrivals)})
	}
	all = append(all, pair{"lock", loadgen.YAML(s.Lock)}, pair{"hold", s.Hold}, pair{"think", s.Think})
	if s.Reads > 0 {
		all = append(all, pair{"reads", loadgen.FormatShare(s.Reads)})
	}
	if s.Depth > 1 {
		all = append(all, pair{"depth", s.Depth})
	}
	if s.Patience > 0 {
		all = append(all, pair{"patience", humanize.Setting(s.Patience)})
	}
	if s.Warmup > 0 {
		all = append(all, pair{"warm-up", humanize.Setting(s.Warmup) + ", not in the figures"})
	}
	for _, stage := range s.Stages {
		all = append(all, pair{"stage", loadgen.YAML(stage)})
	}
	for _, threshold := range s.Thresholds {
		all = append(all, pair{"threshold", threshold})
	}
	return all
}

// sharing describes how the clients share connections.
func sharing(s loadgen.Scenario) string {
	if s.Clients <= s.Conns {
		return "each with a connection of its own, like a process"
	}
	return fmt.Sprintf("on %d connections: those that share one queue in memory, like goroutines of one process", s.Conns)
}

// counts returns the counts whose sums hold. It counts attempts that were cut off as
// waiting.
func counts(m loadgen.Metrics) map[string]int64 {
	return map[string]int64{
		"offered": m.Offered(), "arrivals": m.Arrivals, "acquired": m.Acquired, "timed_out": m.TimedOut, "refused": m.Refused,
		"errors": m.Errors, "waiting": m.CutOff + int64(m.Clients.Waiting), "released": m.Released, "expired": m.Expired,
		"lost": m.Lost, "unconfirmed": m.Unconfirmed, "abandoned": m.Abandoned, "holding": int64(m.Clients.Holding),
		"late": m.LateArrivals, "backlog": m.Backlog, "attempts": m.Cost.Attempts, "renewals": m.Cost.Renewals, "commands": m.Cost.Commands,
	}
}

func violations(v oracle.Violations) map[string]int64 {
	return map[string]int64{
		"overlaps": v.Overlap.Count, "overlaps_excused": v.Overlap.Excused, "work_overlaps": v.WorkOverlap.Count,
		"untold": v.Untold, "unexplained_losses": v.LostAlone, "overtaken": v.Overtaken, "fence_order": v.NumberFell, "late_work": v.LateWork.Count,
		"fenced": v.Fenced, "corrupt": v.AcceptedStaleWrites, "stuck": v.Stuck, "foreign_unlocks": v.ForeignUnlocks,
	}
}

// namedLatency is a latency of a run with its name.
type namedLatency struct {
	name    string
	latency loadgen.Latency
}

func latencies(m loadgen.Metrics) []namedLatency {
	return []namedLatency{
		{"wait", m.Latency.Wait}, {"held", m.Latency.Held}, {"release", m.Latency.Release}, {"hand-off", m.Latency.Handoff}, {"renewal late", m.Latency.RenewLate},
	}
}
