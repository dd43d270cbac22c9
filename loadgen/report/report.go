// Package report writes what a run of package loadgen showed: as text, JSON, CSV and
// HTML, as percentiles of HdrHistogram and for Prometheus.
package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
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
	Proof    *oracle.Proof        // nil or without holds: nothing was recorded
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

// proof returns the proof of the history if it says something beside the verdict of the metrics: it goes by the times of the
// same replies.
func (r Result) proof(v loadgen.Verdict) *oracle.Proof {
	if p := r.Proof; p != nil && p.Holds > 0 && (p.Sound || !v.Doubtful) {
		return p
	}
	return nil
}

// Verdict returns the verdict on the metrics, the proof and the witness.
func (r Result) Verdict() loadgen.Verdict {
	v := r.Metrics.Verdict(r.Scenario)
	v.Gaps = append(v.Gaps, r.Gaps...)
	if p := r.proof(v); p != nil {
		v.Safe = v.Safe && (p.Sound || !r.Scenario.Lock.Kind.Sound())
		v.Harmless = v.Harmless && p.Sound
		v.Others = append(v.Others, p.String()+".")
	}
	if w := r.Witness; w != nil {
		v.Safe = v.Safe && (w.Overlaps == w.Excused || !r.Scenario.Lock.Kind.Sound())
		v.Harmless = v.Harmless && w.Overlaps == 0
		if w.Overlaps > 0 && r.Metrics.Violations.Overlap.Count == 0 { // only the witness has seen them
			many := r.Scenario.Lock.TooMany()
			v.Overlap = strings.ToUpper(many[:1]) + many[1:] + " were inside at once, as the order of the witness proves."
		}
		v.Others = append(v.Others, "Witness: "+w.String()+".")
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
	rows := [][]string{{"second", "clients", "acquired", "errors", "lost_or_expired", "overlaps", "faults", "wait_p50_ms", "wait_p90_ms", "wait_p99_ms", "wait_max_ms"}}
	for i, s := range r.Seconds {
		var row []string
		for _, n := range []int64{int64(i + 1), int64(s.Clients), s.Acquired, s.Errors, s.Lost, s.Overlaps, s.Faults} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		for _, d := range []time.Duration{s.Wait.P50, s.Wait.P90, s.Wait.P99, s.Wait.Max} {
			row = append(row, strconv.FormatFloat(ms(d), 'f', -1, 64))
		}
		rows = append(rows, row)
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

// settings returns the lines of the scenario's file that the report does not have elsewhere.
func settings(s loadgen.Scenario) (all []pair) {
	clients, list := sharing(s), ""
	s.Name, s.Caption, s.Watch, s.Seed, s.Conns, s.Versus, s.Faults, s.Expect = "", "", "", 0, 0, nil, nil, nil
	for line := range strings.Lines(string(s.Marshal())) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		item, inList := strings.CutPrefix(line, "  - ")
		switch {
		case inList:
			all = append(all, pair{list, strings.TrimSpace(item)})
		case value == "":
			list = key
		case key == "clients":
			value += ", " + clients
			fallthrough
		default:
			all = append(all, pair{key, strings.TrimSpace(value)})
		}
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

// sums are the counts that add up to another one.
var sums = map[string][]string{
	"offered":  {"arrivals", "backlog"},
	"arrivals": {"acquired", "timed_out", "refused", "errors", "waiting"},
	"acquired": {"released", "expired", "lost", "unconfirmed", "abandoned", "holding"},
}

// rows returns the known figures but for the latencies, in groups by the first part of their
// names: either those of violations or all others. A count that is in a sum and has no share
// has no row.
func rows(m loadgen.Metrics, violations bool) (all []pair) {
	figures, latencies := m.Figures(), loadgen.LatencyNames()
	inSum := slices.Concat(sums["arrivals"], sums["acquired"], sums["offered"])
	for _, name := range loadgen.FigureNames() {
		group, part, _ := strings.Cut(name, ".")
		_, violation := oracle.Violation(group).Kind()
		v, known := figures[name]
		label, text, last := loadgen.Label(group), figures.Text(name), len(all)-1
		switch {
		case !known || violation != violations || slices.Contains(latencies, group):
		case part == "count" && sums[group] != nil:
			all = append(all, pair{label, text + " = " + strings.Join(each(sums[group], func(part string) string {
				return figures.Text(part+".count") + " " + loadgen.Label(part)
			}), " + ")})
		case slices.Contains(inSum, group) && figures[group+".rate"] == 0:
		case last >= 0 && all[last].name == label:
			if v != 0 {
				all[last].value += ", " + loadgen.Label(part) + " " + text
			}
		case part == "" || part == "count":
			all = append(all, pair{label, text})
		default:
			all = append(all, pair{label, loadgen.Label(part) + " " + text})
		}
	}
	return all
}

func each[A, B any](all []A, of func(A) B) (results []B) {
	for _, one := range all {
		results = append(results, of(one))
	}
	return results
}

// latencies returns the table of the latencies that have samples, with its head.
func latencies(m loadgen.Metrics) [][]string {
	figures := m.Figures()
	all := [][]string{append([]string{""}, each(loadgen.LatencyParts(), loadgen.Label)...)}
	for _, name := range loadgen.LatencyNames() {
		if _, known := figures[name+".count"]; known {
			all = append(all, append([]string{loadgen.Label(name)}, each(loadgen.LatencyParts(), func(part string) string { return figures.Text(name + "." + part) })...))
		}
	}
	return all
}

// WriteText writes the report as text: the verdict, what the scenario is to show, and the
// figures. Plain must make text from the server safe for a terminal.
func (r Result) WriteText(w io.Writer, plain func(string) string) error {
	m := r.Metrics
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n\n", strings.TrimSpace(fmt.Sprintf("%s: %s, %s", plain(name(r.Scenario)), r.Lock(), load(r.Scenario))))
	r.writeVerdict(t, plain)
	if r.Scenario.Caption != "" {
		fmt.Fprintf(t, "\n%s\n", plain(r.Scenario.Caption))
	}
	writePairs(t, r.scene(), plain)
	fmt.Fprintf(t, "\nran\t%s, seed %d\n", humanize.Precise(m.Elapsed), r.Scenario.Seed)
	writePairs(t, settings(r.Scenario), plain)
	for _, f := range m.Faults {
		fmt.Fprintf(t, "fault\t%s\n", plain(f.String()))
	}
	fmt.Fprintln(t)
	writePairs(t, rows(m, false), plain)
	fmt.Fprintln(t)
	for _, row := range latencies(m) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if censored := m.Latency.Wait.Censored; censored > 0 {
		fmt.Fprintf(t, "The waits include %s that ended without the lock, with the time until this end.\n", humanize.Plural(censored, "attempt"))
	}
	fmt.Fprintln(t)
	writePairs(t, rows(m, true), plain)
	for _, e := range r.evidence() {
		fmt.Fprintf(t, "  %s\n", sentence(e, r.Metrics.Began, plain))
	}
	r.writeAgents(t, plain)
	r.writeBaseline(t, plain)
	return t.Flush()
}

// pair is a named figure or setting.
type pair struct{ name, value string }

func writePairs(w io.Writer, all []pair, plain func(string) string) {
	for _, one := range all {
		fmt.Fprintf(w, "%s\t%s\n", one.name, plain(one.value))
	}
}

// writeVerdict writes the verdict, and what makes it less than complete.
func (r Result) writeVerdict(w io.Writer, plain func(string) string) {
	v := r.Verdict()
	fmt.Fprintf(w, "%s\n", v.Text())
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
	claims := make(map[string][]string)
	for _, t := range r.Scenario.Expect {
		shown := map[bool]string{true: "seen", false: "not seen"}[t.Met(r.Metrics)]
		if r.Metrics.Oracles > 1 {
			shown += " by each agent among its own clients"
		}
		claims[shown] = append(claims[shown], fmt.Sprintf("%s %s (%s)", t.Figure, t.Measured(r.Metrics), strings.TrimPrefix(t.String(), t.Figure+" ")))
	}
	return append(all, pair{"claim", strings.Join(each(slices.Sorted(maps.Keys(claims)), func(shown string) string {
		return shown + ": " + strings.Join(claims[shown], ", ")
	}), "; ")})
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
			humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99), a.Offset(), state)
	}
	fmt.Fprint(w, "The witness sees the clients of all agents. Each other count of violations is of the clients of one agent among themselves.\n")
}

// WriteComparison writes one line per run, to compare runs that ran at the same time.
func WriteComparison(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := []string{"throughput", "commands_per_hold", "wait.p50", "wait.p99", "wait.max", "hand_off.p50", "overlap.count"}
	fmt.Fprintf(t, "\nside by side\t%s\n", strings.Join(each(columns, loadgen.Label), "\t"))
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\n", r.Lock(), strings.Join(each(columns, r.Metrics.Figures().Text), "\t"))
	}
	return t.Flush()
}

// evidenceShown is how many violations of each kind a report for people shows; --json shows
// more.
const evidenceShown = 3

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
			fmt.Fprintf(&b, ", fence %d", side.Fence)
		}
	}
	if e.Cause != "" {
		fmt.Fprintf(&b, " (%s)", plain(e.Cause))
	}
	return b.String()
}
