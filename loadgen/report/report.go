// Package report writes what a run of package loadgen showed: as text, JSON, CSV and
// HTML, as percentiles of HdrHistogram and for Prometheus.
package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

// Result describes a run that is over.
type Result struct {
	Scenario loadgen.Scenario
	Metrics  loadgen.Metrics
	Seconds  []loadgen.Second     // of the whole run
	Proof    *oracle.Proof        // nil = not requested
	Witness  *witness.Results     // nil = there was none
	Agents   []loadgen.AgentState // of a load by several processes
	Baseline *Baseline            // earlier reports to compare with; nil = none
	Gaps     []string             // sentences on why the figures are not complete
	Unclean  string               // error of the release at the end, "" if there is none; may hold bytes from the server
}

// Lock names the lock: the library of client processes, or the kind with its settings.
func (r Result) Lock() string {
	if r.Metrics.Library != "" {
		return r.Metrics.Library + " (client process)"
	}
	return r.Scenario.Lock.String()
}

// Verdict returns the verdict on the metrics, the proof and the witness.
func (r Result) Verdict() loadgen.Verdict {
	v := r.Metrics.Verdict(r.Scenario)
	v.Gaps = append(v.Gaps, r.Gaps...)
	if r.Proof != nil {
		v.Safe = v.Safe && (r.Proof.Sound || !r.Proof.Known || !r.Scenario.Lock.Kind.Sound())
		v.Text += " Checked: " + r.Proof.String() + "."
		v.Harmless = v.Harmless && r.Proof.Sound
		if !r.Proof.Known || r.Proof.LeftOut > 0 {
			v.Gaps = append(v.Gaps, "The proof is not complete: "+r.Proof.String()+".")
		}
	}
	if w := r.Witness; w != nil {
		v.Safe = v.Safe && (w.Overlaps == w.Excused || !r.Scenario.Lock.Kind.Sound())
		v.Harmless = v.Harmless && w.Overlaps == 0
		if w.Overlaps > 0 && r.Metrics.Violations.Overlap.Count == 0 { // only the witness has seen them
			many := r.Scenario.Lock.TooMany()
			v.Text = strings.ToUpper(many[:1]) + many[1:] + " were inside at once, as the order of the witness proves. " +
				strings.TrimPrefix(strings.TrimPrefix(v.Text, r.Metrics.Together(r.Scenario)), " ")
		}
		v.Text = strings.TrimSuffix(v.Text, " ") + " Witness: " + w.String() + "."
		if w.Unseen > 0 {
			v.Gaps = append(v.Gaps, fmt.Sprintf("The witness did not answer %s.", humanize.Times(w.Unseen)))
		}
		if w.Err != nil {
			v.Gaps = append(v.Gaps, fmt.Sprintf("The holds were not all judged: %v.", w.Err))
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

func name(s loadgen.Scenario) string {
	return cmp.Or(s.Name, "load")
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
	if s.Lock.Kind == loadgen.Exec {
		return "each a process"
	}
	if s.Clients <= s.Conns {
		return "each with its own connection, like a process"
	}
	return fmt.Sprintf("on %d connections; clients on the same connection share one local queue, like goroutines of one process", s.Conns)
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
		"untold": v.Unnotified, "unexplained_losses": v.UnexplainedLoss, "overtaken": v.Overtaken, "fence_order": v.FenceOrder, "late_work": v.LateWork.Count,
		"fenced": v.Fenced, "corrupt": v.AcceptedStaleWrites, "stuck": v.Stuck, "unexplained_stuck": v.UnexplainedStuck, "foreign_unlocks": v.ForeignUnlocks, "unjudged": v.Unjudged,
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

// WriteText writes the report as text: the verdict, what the scenario is to show, and the
// figures. Plain must make text from the server safe for a terminal.
func (r Result) WriteText(w io.Writer, plain func(string) string) error {
	m, n := r.Metrics, humanize.Count[int64]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n\n", strings.TrimSpace(fmt.Sprintf("%s: %s, %s", plain(name(r.Scenario)), r.Lock(), load(r.Scenario))))
	r.writeVerdict(t, plain)
	r.writeScene(t, plain)
	fmt.Fprintf(t, "\nran\t%s, seed %d\n", humanize.Precise(m.Elapsed), r.Scenario.Seed)
	for _, setting := range settings(r.Scenario) {
		fmt.Fprintf(t, "%s\t%s\n", setting.name, plain(fmt.Sprint(setting.value)))
	}
	for _, f := range m.Faults {
		fmt.Fprintf(t, "fault\t%s\n", plain(f.String()))
	}
	fmt.Fprintln(t)
	fmt.Fprintf(t, "offered\t%s = %s arrivals + %s without a client\n", n(m.Offered()), n(m.Arrivals), n(m.Backlog))
	fmt.Fprintf(t, "arrivals\t%s = %s acquired + %s timed out + %s refused + %s errors + %s still waiting\n",
		n(m.Arrivals), n(m.Acquired), n(m.TimedOut), n(m.Refused), n(m.Errors), n(m.CutOff+int64(m.Clients.Waiting)))
	fmt.Fprintf(t, "acquired\t%s = %s released + %s expired + %s lost + %s unconfirmed + %s abandoned + %s holding\n",
		n(m.Acquired), n(m.Released), n(m.Expired), n(m.Lost), n(m.Unconfirmed), n(m.Abandoned), n(int64(m.Clients.Holding)))
	if r.Scenario.Rate > 0 {
		fmt.Fprintf(t, "late\t%s arrivals had to wait for a client, %s never got one\n", n(m.LateArrivals), n(m.Backlog))
	}
	fmt.Fprintf(t, "throughput\t%.1f/s, %.1f commands per hold%s\n", m.Throughput(), m.CommandsPerHold(), costText(m))
	fmt.Fprintf(t, "fairness\t%.2f (1 = equal), longest wait %s%s\n", m.Fairness.Jain, humanize.Precise(m.Fairness.Starved), streak(m))
	fmt.Fprintf(t, "keys\theld %.0f%% of the time\n", 100*m.Utilisation)
	fmt.Fprint(t, "\n\tcount\tmean\tp50\tp90\tp95\tp99\tp99.9\tmax\n")
	for _, row := range latencies(m) {
		l := row.latency
		if l.Count > 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.name, n(l.Count), humanize.Precise(l.Mean),
				humanize.Precise(l.P50), humanize.Precise(l.P90), humanize.Precise(l.P95), humanize.Precise(l.P99), humanize.Precise(l.P999), humanize.Precise(l.Max))
		}
	}
	if censored := m.Latency.Wait.Censored; censored > 0 {
		fmt.Fprintf(t, "The waits include %s that ended without the lock, with the time until this end.\n", humanize.Plural(censored, "attempt"))
	}
	r.writeViolations(t, plain)
	r.writeAgents(t, plain)
	r.writeBaseline(t, plain)
	return t.Flush()
}

// writeVerdict writes the verdict, and what makes it less than complete.
func (r Result) writeVerdict(w io.Writer, plain func(string) string) {
	v := r.Verdict()
	fmt.Fprintf(w, "%s\n", v.Text)
	for _, missed := range v.Missed {
		fmt.Fprintf(w, "threshold missed: %s\n", missed)
	}
	for _, gap := range v.Gaps {
		fmt.Fprintf(w, "%s\n", plain(gap))
	}
	if r.Metrics.LastErr != "" {
		fmt.Fprintf(w, "newest error: %s\n", plain(r.Metrics.LastErr))
	}
	if r.Unclean != "" {
		fmt.Fprintf(w, "not released: %s\n", plain(r.Unclean))
	}
}

// writeScene writes what the scenario is to show, and whether it was seen.
func (r Result) writeScene(w io.Writer, plain func(string) string) {
	if r.Scenario.Caption != "" {
		fmt.Fprintf(w, "\n%s\n", plain(r.Scenario.Caption))
	}
	for _, line := range r.scene() {
		fmt.Fprintf(w, "%s\t%s\n", line.name, plain(fmt.Sprint(line.value)))
	}
}

// scene returns what to watch in the scenario, and whether the run showed what the scenario
// expects, with the figures.
func (r Result) scene() []pair {
	var all []pair
	if r.Scenario.Watch != "" {
		all = append(all, pair{"watch", r.Scenario.Watch})
	}
	if len(r.Scenario.Expect) == 0 {
		return all
	}
	var seen, unseen []string
	for _, t := range r.Scenario.Expect {
		figure := fmt.Sprintf("%s %s (%s)", t.Metric, t.Measured(r.Metrics), strings.TrimPrefix(t.String(), t.Metric+" "))
		if t.Met(r.Metrics) {
			seen = append(seen, figure)
		} else {
			unseen = append(unseen, figure)
		}
	}
	text, of := "", ""
	if r.Metrics.Oracles > 1 {
		of = " by each agent among its own clients"
	}
	if len(unseen) > 0 {
		text = "not seen" + of + ": " + strings.Join(unseen, ", ") + "; "
	}
	if len(seen) > 0 {
		text += "seen" + of + ": " + strings.Join(seen, ", ")
	}
	return append(all, pair{"claim", strings.TrimSuffix(text, "; ")})
}

// streak describes the most acquires in a row, which agents cannot know.
func streak(m loadgen.Metrics) string {
	if m.Fairness.Streak == 0 {
		return ""
	}
	return fmt.Sprintf(", %s in a row by one client", humanize.Count(m.Fairness.Streak))
}

// writeAgents writes one line for each agent, and what its oracle cannot see.
func (r Result) writeAgents(w io.Writer, plain func(string) string) {
	if len(r.Agents) == 0 {
		return
	}
	fmt.Fprint(w, "\nagent\tclients\tacquired\twait p50\tp99\tclock\t\n")
	for _, a := range r.Agents {
		state := ""
		if a.Lost {
			state = "lost"
		}
		m := a.Metrics
		fmt.Fprintf(w, "%d %s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Number, plain(a.Name), humanize.Count(a.Clients), humanize.Count(m.Acquired),
			humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99), clockText(a.Clock), state)
	}
	fmt.Fprint(w, "The witness sees the clients of all agents. Each other count of violations is of the clients of one agent among themselves.\n")
}

// clockText describes how far a clock is from the common one.
func clockText(behind time.Duration) string {
	switch {
	case behind.Abs() < time.Millisecond:
		return "±1 ms"
	case behind > 0:
		return "-" + humanize.Precise(behind)
	}
	return "+" + humanize.Precise(-behind)
}

// costText describes the known costs of a hold.
func costText(m loadgen.Metrics) string {
	var text string
	if m.Acquired == 0 {
		return text
	}
	if m.Cost.Attempts > 0 {
		text = fmt.Sprintf(", %.2f attempts per hold", float64(m.Cost.Attempts)/float64(m.Acquired))
	}
	if m.Cost.CPU > 0 {
		text += fmt.Sprintf(", %s of the server's CPU per hold", humanize.Precise(m.Cost.CPU/time.Duration(m.Acquired)))
	}
	return text
}

// WriteComparison writes one line per run, to compare runs that ran at the same time.
func WriteComparison(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nside by side\tholds/s\tcommands per hold\twait p50\tp99\tmax\thand-off p50\toverlaps\n")
	for _, r := range results {
		m := r.Metrics
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\n", r.Lock(), m.Throughput(), m.CommandsPerHold(),
			humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99), humanize.Precise(m.Latency.Wait.Max), humanize.Precise(m.Latency.Handoff.P50), humanize.Count(m.Violations.Overlap.Count))
	}
	return t.Flush()
}

// evidenceShown is how many violations of each kind a report for people shows; --json shows
// more.
const evidenceShown = 3

func (r Result) writeViolations(w io.Writer, plain func(string) string) {
	v, n := r.Metrics.Violations, humanize.Count[int64]
	fmt.Fprintf(w, "\noverlaps\t%s within leases, longest %s; %s of work, longest %s\n", n(v.Overlap.Count), humanize.Precise(v.Overlap.Longest),
		n(v.WorkOverlap.Count), humanize.Precise(v.WorkOverlap.Longest))
	fmt.Fprintf(w, "leases\t%s ended without notice to the holder, %s lost without a fault\n", n(v.Unnotified), n(v.UnexplainedLoss))
	fmt.Fprintf(w, "order\t%s clients overtaken in a queue, %s fencing tokens that did not increase\n", n(v.Overtaken), n(v.FenceOrder))
	fmt.Fprintf(w, "late work\t%s times, longest %s\n", n(v.LateWork.Count), humanize.Precise(v.LateWork.Longest))
	fmt.Fprintf(w, "stale writes\t%s refused because of their fencing token, %s accepted\n", n(v.Fenced), n(v.AcceptedStaleWrites))
	fmt.Fprintf(w, "foreign unlocks\t%s\n", n(v.ForeignUnlocks))
	if len(r.Agents) == 0 {
		fmt.Fprintf(w, "stuck keys\t%s, %s without a fault\n", n(v.Stuck), n(v.UnexplainedStuck))
	}
	for _, e := range r.evidence() {
		fmt.Fprintf(w, "  %s\n", sentence(e, r.Metrics.Began, plain))
	}
}

// evidence returns the first violations of each kind.
func (r Result) evidence() []oracle.Evidence {
	var all []oracle.Evidence
	shown := make(map[oracle.Violation]int)
	for _, e := range r.Metrics.Violations.Evidence {
		if shown[e.Violation]++; shown[e.Violation] <= evidenceShown {
			all = append(all, e)
		}
	}
	return all
}

// sentence describes the evidence in one sentence.
func sentence(e oracle.Evidence, began time.Time, plain func(string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s on %s", e.Violation, humanize.Precise(e.At.Sub(began)), plain(e.Key))
	if e.Length > 0 {
		fmt.Fprintf(&b, ", for %s", humanize.Precise(e.Length))
	}
	for i, side := range slices.Concat([]oracle.Side{e.First}, e.Others, []oracle.Side{e.Second}) {
		if side.Client == 0 {
			continue
		}
		end := " to " + humanize.Precise(side.To.Sub(began))
		if side.Inside {
			end = " (still inside)"
		}
		fmt.Fprintf(&b, "%s %s inside from %s%s, deadline %s", []string{":", ";"}[min(i, 1)], oracle.ClientLabel(side.Client),
			humanize.Precise(side.From.Sub(began)), end, humanize.Precise(side.Deadline.Sub(began)))
		if side.Fence > 0 {
			fmt.Fprintf(&b, ", number %d", side.Fence)
		}
	}
	if e.Cause != "" {
		fmt.Fprintf(&b, " (%s)", plain(e.Cause))
	}
	return b.String()
}
