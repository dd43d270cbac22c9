package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"locktop/humanize"
	"locktop/loadgen/oracle"
)

// Report describes a run that is over.
type Report struct {
	Scenario Scenario
	Metrics  Metrics
	Seconds  []Second      // of the whole run
	Proof    *oracle.Proof // nil = not requested
	Unclean  string        // error of the release at the end, "" if there is none; may hold bytes from the server
}

// Verdict returns the verdict on the metrics and the proof.
func (r Report) Verdict() Verdict {
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

// SecondsRecorder collects all seconds of a run. [Metrics] has only the newest. The
// zero value is empty.
type SecondsRecorder struct{ seconds []Second }

// Add adds the finished seconds of m. Call it more than once per [HistorySeconds]
// seconds.
func (c *SecondsRecorder) Add(m Metrics) {
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
func (c *SecondsRecorder) Seconds() []Second { return c.seconds }

// WriteText writes the report as text. Plain must make text from the server safe for a
// terminal.
func (r Report) WriteText(w io.Writer, plain func(string) string) error {
	m, v, n := r.Metrics, r.Verdict(), humanize.Count[int64]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n", strings.TrimSpace(fmt.Sprintf("%s: %s, %s", plain(name(r.Scenario)), r.Scenario.Lock, r.Scenario.load())))
	fmt.Fprintf(t, "\nran\t%s, seed %d\n", humanize.Precise(m.Elapsed), r.Scenario.Seed)
	for _, setting := range r.Scenario.settings() {
		fmt.Fprintf(t, "%s\t%s\n", setting.name, plain(fmt.Sprint(setting.value)))
	}
	fmt.Fprintln(t)
	fmt.Fprintf(t, "offered\t%s = %s arrivals + %s without a client\n", n(m.Offered()), n(m.Arrivals), n(m.Backlog))
	fmt.Fprintf(t, "arrivals\t%s = %s acquired + %s timed out + %s refused + %s errors + %s still waiting\n",
		n(m.Arrivals), n(m.Acquired), n(m.TimedOut), n(m.Refused), n(m.Errors), n(m.CutOff+int64(m.Waiting)))
	fmt.Fprintf(t, "acquired\t%s = %s released + %s expired + %s lost + %s unconfirmed + %s abandoned + %s holding\n",
		n(m.Acquired), n(m.Released), n(m.Expired), n(m.Lost), n(m.Unconfirmed), n(m.Abandoned), n(int64(m.Holding)))
	if r.Scenario.Rate > 0 {
		fmt.Fprintf(t, "late\t%s arrivals had to wait for a client, %s never got one\n", n(m.LateArrivals), n(m.Backlog))
	}
	fmt.Fprintf(t, "throughput\t%.1f/s, %.1f commands a hold%s\n", m.Throughput(), m.CommandsPerHold(), m.costText())
	fmt.Fprintf(t, "fairness\t%.2f (1 = all alike), longest wait %s, %s in a row by one client\n",
		m.Fairness.Jain, humanize.Precise(m.Fairness.Starved), n(int64(m.Fairness.Streak)))
	fmt.Fprintf(t, "keys\theld %.0f%% of the time\n", 100*m.Utilisation)
	fmt.Fprint(t, "\n\tcount\tmean\tp50\tp90\tp95\tp99\tp99.9\tmax\n")
	for _, row := range m.latencies() {
		l := row.latency
		if l.Count > 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.name, n(l.Count), humanize.Precise(l.Mean),
				humanize.Precise(l.P50), humanize.Precise(l.P90), humanize.Precise(l.P95), humanize.Precise(l.P99), humanize.Precise(l.P999), humanize.Precise(l.Max))
		}
	}
	if m.Wait.Censored > 0 {
		fmt.Fprintf(t, "%s of the waits ended without the lock: they count as long as they lasted, and would have been longer\n", n(m.Wait.Censored))
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

func name(s Scenario) string {
	if s.Name == "" {
		return "load"
	}
	return s.Name
}

// load describes the clients and the keys in a few words.
func (s Scenario) load() string {
	keys := humanize.Plural(s.Keys.N, "key")
	if s.Keys.N == 1 || s.Keys.Pick == PickOne {
		keys = "one key"
	}
	if s.Rate > 0 {
		return fmt.Sprintf("%g arrivals/s on %s", s.Rate, keys)
	}
	return fmt.Sprintf("%s on %s", humanize.Plural(s.Clients, "client"), keys)
}

// settings returns the settings of the run as text.
func (s Scenario) settings() []pair {
	all := []pair{{"clients", fmt.Sprintf("%s, %s", humanize.Count(s.Clients), s.sharing())}, {"keys", s.Keys.flow()}}
	if s.Rate > 0 {
		all = append(all, pair{"rate", rateText(s.Rate) + ", " + string(s.Arrivals)})
	}
	all = append(all, pair{"lock", s.Lock.flow()}, pair{"hold", s.Hold}, pair{"think", s.Think})
	if s.Reads > 0 {
		all = append(all, pair{"reads", percent(s.Reads)})
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
		all = append(all, pair{"stage", stage.flow()})
	}
	for _, threshold := range s.Thresholds {
		all = append(all, pair{"threshold", threshold})
	}
	return all
}

// String returns the outcome in one line.
func (f FaultOutcome) String() string {
	text := fmt.Sprintf("%s struck %s", f.Fault.flow(), humanize.Times(f.Struck))
	if f.Struck == 0 {
		text = f.Fault.flow() + " never struck"
	}
	if f.Why != "" {
		text += ": " + f.Why
	}
	return text
}

// sharing describes how the clients share connections.
func (s Scenario) sharing() string {
	if s.Clients <= s.Conns {
		return "each with a connection of its own, like a process"
	}
	return fmt.Sprintf("on %d connections: those that share one queue in memory, like goroutines of one process", s.Conns)
}

// costText describes the known costs of a hold.
func (m Metrics) costText() string {
	var text string
	if m.Acquired == 0 {
		return text
	}
	if m.Attempts > 0 {
		text = fmt.Sprintf(", %.2f attempts a hold", ratio(float64(m.Attempts), float64(m.Acquired)))
	}
	if m.Server.CPU > 0 {
		text += fmt.Sprintf(", %s of the server's CPU a hold", humanize.Precise(m.Server.CPU/time.Duration(m.Acquired)))
	}
	return text
}

// namedLatency is a latency of a run with its name.
type namedLatency struct {
	name    string
	latency Latency
}

func (m Metrics) latencies() []namedLatency {
	return []namedLatency{
		{"wait", m.Wait}, {"held", m.Held}, {"release", m.Service}, {"hand-off", m.Handoff}, {"renewal late", m.RenewLate},
	}
}

// WriteComparison writes one line per run, to compare runs that ran at the same time.
func WriteComparison(w io.Writer, reports []Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nside by side\tholds/s\tcommands a hold\twait p50\tp99\tmax\thand-off p50\toverlaps\n")
	for _, r := range reports {
		m := r.Metrics
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\n", r.Scenario.Lock, m.Throughput(), m.CommandsPerHold(),
			humanize.Precise(m.Wait.P50), humanize.Precise(m.Wait.P99), humanize.Precise(m.Wait.Max), humanize.Precise(m.Handoff.P50), humanize.Count(m.Violations.Overlap.Count))
	}
	return t.Flush()
}

// evidenceShown is how many violations of each kind the text shows; --json shows more.
const evidenceShown = 3

func (r Report) writeViolations(w io.Writer, plain func(string) string) {
	m, n := r.Metrics, humanize.Count[int64]
	fmt.Fprintf(w, "\noverlaps\t%s within leases, longest %s; %s of work, longest %s\n", n(m.Violations.Overlap.Count), humanize.Precise(m.Violations.Overlap.Longest),
		n(m.Violations.WorkOverlap.Count), humanize.Precise(m.Violations.WorkOverlap.Longest))
	fmt.Fprintf(w, "leases\t%s over without telling their holder, %s lost without a fault\n", n(m.Violations.Untold), n(m.Violations.LostAlone))
	fmt.Fprintf(w, "order\t%s clients overtaken in a queue, %s fencing numbers that did not rise\n", n(m.Violations.Overtaken), n(m.Violations.NumberFell))
	fmt.Fprintf(w, "late work\t%s times, longest %s\n", n(m.Violations.LateWork.Count), humanize.Precise(m.Violations.LateWork.Longest))
	fmt.Fprintf(w, "stale writes\t%s refused by their number, %s accepted\n", n(m.Violations.Fenced), n(m.Violations.AcceptedStaleWrites))
	fmt.Fprintf(w, "foreign unlocks\t%s\n", n(m.Violations.ForeignUnlocks))
	fmt.Fprintf(w, "stuck keys\t%s\n", n(m.Violations.Stuck))
	shown := map[oracle.Violation]int{}
	for _, e := range m.Violations.Evidence {
		if shown[e.Violation]++; shown[e.Violation] > evidenceShown {
			continue
		}
		fmt.Fprintf(w, "  %s\n", sentence(e, m.Began, plain))
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

// MarshalJSON returns the report as a JSON document. docs/load.md explains it.
func (r Report) MarshalJSON() ([]byte, error) { return json.Marshal(r.document()) }

// jsonReport is the JSON form of a report. All times are in milliseconds.
type jsonReport struct {
	Name       string             `json:"name"`
	Lock       string             `json:"lock"`
	Seed       uint64             `json:"seed"`
	Began      time.Time          `json:"began"`
	Elapsed    float64            `json:"elapsed_ms"`
	Scenario   string             `json:"scenario"` // in the file format
	Clients    int                `json:"clients"`
	Conns      int                `json:"conns"`
	Keys       int                `json:"keys"`
	Counts     map[string]int64   `json:"counts"`
	Latencies  map[string]jsonLat `json:"latencies"`
	Figures    map[string]float64 `json:"figures"`
	Violations map[string]int64   `json:"violations"`
	Faults     []jsonFault        `json:"faults"`
	Evidence   []jsonEvidence     `json:"evidence"`
	Seconds    []jsonSecond       `json:"seconds"`
	Verdict    jsonVerdict        `json:"verdict"`
	LastError  string             `json:"last_error,omitempty"`
	Unclean    string             `json:"unclean,omitempty"`
}

type jsonLat struct {
	Count    int64   `json:"count"`
	Censored int64   `json:"censored"`
	Mean     float64 `json:"mean_ms"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P95      float64 `json:"p95_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p99_9_ms"`
	Max      float64 `json:"max_ms"`
}

type jsonFault struct {
	Fault  string  `json:"fault"` // in the file format
	Kind   string  `json:"kind"`
	At     float64 `json:"at_ms"`
	Struck int     `json:"struck"`
	Why    string  `json:"why,omitempty"`
}

type jsonEvidence struct {
	Violation oracle.Violation `json:"violation"`
	Key       string           `json:"key"`
	At        float64          `json:"at_ms"`
	Length    float64          `json:"length_ms"`
	First     *jsonSide        `json:"first,omitempty"`
	Second    *jsonSide        `json:"second,omitempty"`
	Cause     string           `json:"cause,omitempty"`
}

type jsonSide struct {
	Owner    string  `json:"owner"`
	Token    string  `json:"token,omitempty"`
	Fence    int64   `json:"fence,omitempty"`
	Reader   bool    `json:"reader,omitempty"`
	From     float64 `json:"from_ms"`
	To       float64 `json:"to_ms"`
	Deadline float64 `json:"deadline_ms"`
}

type jsonSecond struct {
	Acquired int64   `json:"acquired"`
	P50      float64 `json:"wait_p50_ms"`
	P99      float64 `json:"wait_p99_ms"`
}

type jsonVerdict struct {
	Safe     bool     `json:"safe"`
	Expected bool     `json:"expected"`
	Text     string   `json:"text"`
	Missed   []string `json:"missed"`
	Gaps     []string `json:"gaps"`
	Check    string   `json:"check,omitempty"`
}

func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

func (r Report) document() jsonReport {
	m, v := r.Metrics, r.Verdict()
	doc := jsonReport{
		Name: name(r.Scenario), Lock: r.Scenario.Lock.String(), Seed: r.Scenario.Seed,
		Began: m.Began.UTC(), Elapsed: ms(m.Elapsed),
		Scenario: string(r.Scenario.Marshal()),
		Clients:  r.Scenario.Clients, Conns: min(r.Scenario.Conns, r.Scenario.Clients), Keys: r.Scenario.Keys.N,
		Counts: m.counts(), Violations: m.violations(),
		Figures: map[string]float64{
			"throughput_per_s": m.Throughput(), "commands_per_hold": m.CommandsPerHold(),
			"utilisation": m.Utilisation, "fairness_jain": m.Fairness.Jain,
			"longest_wait_ms": ms(m.Fairness.Starved), "longest_streak": float64(m.Fairness.Streak),
			"outage_ms": ms(m.Outage.Total), "outage_longest_ms": ms(m.Outage.Longest), "stall_longest_ms": ms(m.Stall.Longest),
			"work_overlap_longest_ms": ms(m.Violations.WorkOverlap.Longest), "work_overlap_total_ms": ms(m.Violations.WorkOverlap.Total),
			"server_cpu_ms": ms(m.Server.CPU), "overlap_longest_ms": ms(m.Violations.Overlap.Longest), "overlap_total_ms": ms(m.Violations.Overlap.Total),
		},
		Latencies: map[string]jsonLat{}, Faults: []jsonFault{}, Evidence: []jsonEvidence{}, Seconds: []jsonSecond{},
		Verdict:   jsonVerdict{Safe: v.Safe, Expected: v.Expected, Text: v.Text, Missed: append([]string{}, v.Missed...), Gaps: append([]string{}, v.Gaps...)},
		LastError: m.LastErr, Unclean: r.Unclean,
	}
	if r.Proof != nil {
		doc.Verdict.Check = r.Proof.String()
	}
	for _, f := range m.Faults {
		doc.Faults = append(doc.Faults, jsonFault{f.Fault.flow(), string(f.Fault.Kind), ms(f.Fault.At), f.Struck, f.Why})
	}
	for _, l := range m.latencies() {
		doc.Latencies[strings.ReplaceAll(l.name, " ", "_")] = jsonLat{
			l.latency.Count, l.latency.Censored, ms(l.latency.Mean), ms(l.latency.P50), ms(l.latency.P90), ms(l.latency.P95),
			ms(l.latency.P99), ms(l.latency.P999), ms(l.latency.Max),
		}
	}
	for _, e := range m.Violations.Evidence {
		doc.Evidence = append(doc.Evidence, jsonEvidence{
			e.Violation, e.Key, ms(e.At.Sub(m.Began)), ms(e.Length), sideJSON(e.First, m.Began), sideJSON(e.Second, m.Began), e.Cause,
		})
	}
	for _, s := range r.Seconds {
		doc.Seconds = append(doc.Seconds, jsonSecond{s.Acquired, ms(s.Wait.P50), ms(s.Wait.P99)})
	}
	return doc
}

func sideJSON(s oracle.Side, began time.Time) *jsonSide {
	if s.Client == 0 {
		return nil
	}
	return &jsonSide{
		oracle.ClientLabel(s.Client), s.Token, s.Fence, s.Reader,
		ms(s.From.Sub(began)), ms(s.To.Sub(began)), ms(s.Deadline.Sub(began)),
	}
}

// Offered returns the number of arrivals with and without a client.
func (m Metrics) Offered() int64 { return m.Arrivals + m.Backlog }

// counts returns the counts whose sums hold. It counts attempts that were cut off as
// waiting.
func (m Metrics) counts() map[string]int64 {
	return map[string]int64{
		"offered": m.Offered(), "arrivals": m.Arrivals, "acquired": m.Acquired, "timed_out": m.TimedOut, "refused": m.Refused,
		"errors": m.Errors, "waiting": m.CutOff + int64(m.Waiting), "released": m.Released, "expired": m.Expired,
		"lost": m.Lost, "unconfirmed": m.Unconfirmed, "abandoned": m.Abandoned, "holding": int64(m.Holding),
		"late": m.LateArrivals, "backlog": m.Backlog, "attempts": m.Attempts, "renewals": m.Renewals, "commands": m.Commands,
	}
}

func (m Metrics) violations() map[string]int64 {
	return map[string]int64{
		"overlaps": m.Violations.Overlap.Count, "overlaps_excused": m.Violations.Overlap.Excused, "work_overlaps": m.Violations.WorkOverlap.Count,
		"untold": m.Violations.Untold, "unexplained_losses": m.Violations.LostAlone, "overtaken": m.Violations.Overtaken, "fence_order": m.Violations.NumberFell, "late_work": m.Violations.LateWork.Count,
		"fenced": m.Violations.Fenced, "corrupt": m.Violations.AcceptedStaleWrites, "stuck": m.Violations.Stuck, "foreign_unlocks": m.Violations.ForeignUnlocks,
	}
}
