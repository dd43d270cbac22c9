package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"locktop/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// WriteText writes the report as text. Plain must make text from the server safe for a
// terminal.
func (r Result) WriteText(w io.Writer, plain func(string) string) error {
	m, v, n := r.Metrics, r.Verdict(), humanize.Count[int64]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n", strings.TrimSpace(fmt.Sprintf("%s: %s, %s", plain(name(r.Scenario)), r.Scenario.Lock, load(r.Scenario))))
	fmt.Fprintf(t, "\nran\t%s, seed %d\n", humanize.Precise(m.Elapsed), r.Scenario.Seed)
	for _, setting := range settings(r.Scenario) {
		fmt.Fprintf(t, "%s\t%s\n", setting.name, plain(fmt.Sprint(setting.value)))
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
	fmt.Fprintf(t, "throughput\t%.1f/s, %.1f commands a hold%s\n", m.Throughput(), m.CommandsPerHold(), costText(m))
	fmt.Fprintf(t, "fairness\t%.2f (1 = all alike), longest wait %s, %s in a row by one client\n",
		m.Fairness.Jain, humanize.Precise(m.Fairness.Starved), n(int64(m.Fairness.Streak)))
	fmt.Fprintf(t, "keys\theld %.0f%% of the time\n", 100*m.Utilisation)
	fmt.Fprint(t, "\n\tcount\tmean\tp50\tp90\tp95\tp99\tp99.9\tmax\n")
	for _, row := range latencies(m) {
		l := row.latency
		if l.Count > 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.name, n(l.Count), humanize.Precise(l.Mean),
				humanize.Precise(l.P50), humanize.Precise(l.P90), humanize.Precise(l.P95), humanize.Precise(l.P99), humanize.Precise(l.P999), humanize.Precise(l.Max))
		}
	}
	if m.Latency.Wait.Censored > 0 {
		fmt.Fprintf(t, "%s of the waits ended without the lock: they count as long as they lasted, and would have been longer\n", n(m.Latency.Wait.Censored))
	}
	r.writeViolations(t, plain)
	for _, f := range m.Faults {
		fmt.Fprintf(t, "fault\t%s\n", plain(f.String()))
	}
	fmt.Fprintf(t, "\n%s\n", v.Text)
	for _, missed := range v.Missed {
		fmt.Fprintf(t, "threshold missed: %s\n", missed)
	}
	for _, gap := range v.Gaps {
		fmt.Fprintf(t, "%s\n", plain(gap))
	}
	if m.LastErr != "" {
		fmt.Fprintf(t, "newest error: %s\n", plain(m.LastErr))
	}
	if r.Unclean != "" {
		fmt.Fprintf(t, "not released: %s\n", plain(r.Unclean))
	}
	return t.Flush()
}

// costText describes the known costs of a hold.
func costText(m loadgen.Metrics) string {
	var text string
	if m.Acquired == 0 {
		return text
	}
	if m.Cost.Attempts > 0 {
		text = fmt.Sprintf(", %.2f attempts a hold", float64(m.Cost.Attempts)/float64(m.Acquired))
	}
	if m.Cost.CPU > 0 {
		text += fmt.Sprintf(", %s of the server's CPU a hold", humanize.Precise(m.Cost.CPU/time.Duration(m.Acquired)))
	}
	return text
}

// WriteComparison writes one line per run, to compare runs that ran at the same time.
func WriteComparison(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nside by side\tholds/s\tcommands a hold\twait p50\tp99\tmax\thand-off p50\toverlaps\n")
	for _, r := range results {
		m := r.Metrics
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\n", r.Scenario.Lock, m.Throughput(), m.CommandsPerHold(),
			humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99), humanize.Precise(m.Latency.Wait.Max), humanize.Precise(m.Latency.Handoff.P50), humanize.Count(m.Violations.Overlap.Count))
	}
	return t.Flush()
}

// evidenceShown is how many violations of each kind the text shows; --json shows more.
const evidenceShown = 3

func (r Result) writeViolations(w io.Writer, plain func(string) string) {
	v, n := r.Metrics.Violations, humanize.Count[int64]
	fmt.Fprintf(w, "\noverlaps\t%s within leases, longest %s; %s of work, longest %s\n", n(v.Overlap.Count), humanize.Precise(v.Overlap.Longest),
		n(v.WorkOverlap.Count), humanize.Precise(v.WorkOverlap.Longest))
	fmt.Fprintf(w, "leases\t%s over without telling their holder, %s lost without a fault\n", n(v.Untold), n(v.LostAlone))
	fmt.Fprintf(w, "order\t%s clients overtaken in a queue, %s fencing numbers that did not rise\n", n(v.Overtaken), n(v.NumberFell))
	fmt.Fprintf(w, "late work\t%s times, longest %s\n", n(v.LateWork.Count), humanize.Precise(v.LateWork.Longest))
	fmt.Fprintf(w, "stale writes\t%s refused by their number, %s accepted\n", n(v.Fenced), n(v.AcceptedStaleWrites))
	fmt.Fprintf(w, "foreign unlocks\t%s\n", n(v.ForeignUnlocks))
	fmt.Fprintf(w, "stuck keys\t%s\n", n(v.Stuck))
	shown := map[oracle.Violation]int{}
	for _, e := range v.Evidence {
		if shown[e.Violation]++; shown[e.Violation] > evidenceShown {
			continue
		}
		fmt.Fprintf(w, "  %s\n", sentence(e, r.Metrics.Began, plain))
	}
}

// sentence describes the evidence in one sentence.
func sentence(e oracle.Evidence, began time.Time, plain func(string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s on %s", e.Violation, humanize.Precise(e.At.Sub(began)), plain(e.Key))
	if e.Length > 0 {
		fmt.Fprintf(&b, ", for %s", humanize.Precise(e.Length))
	}
	for i, side := range []oracle.Side{e.First, e.Second} {
		if side.Client == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s %s inside %s to %s, deadline %s", []string{":", ";"}[i], oracle.ClientLabel(side.Client),
			humanize.Precise(side.From.Sub(began)), humanize.Precise(side.To.Sub(began)), humanize.Precise(side.Deadline.Sub(began)))
		if side.Fence > 0 {
			fmt.Fprintf(&b, ", number %d", side.Fence)
		}
	}
	if e.Cause != "" {
		fmt.Fprintf(&b, " (%s)", plain(e.Cause))
	}
	return b.String()
}
