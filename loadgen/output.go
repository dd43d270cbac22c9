package loadgen

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCSV writes one line per second of the run.
func (r Report) WriteCSV(w io.Writer) error {
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

// WriteHistogram writes the distribution of the waits in milliseconds, in the
// percentile format of HdrHistogram (.hgrm).
func (r *Run) WriteHistogram(w io.Writer) error {
	r.mu.Lock()
	f := r.fleet
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	if _, err := f.recorder.wait.hdr.PercentilesPrint(w, 5, float64(time.Millisecond)); err != nil {
		return fmt.Errorf("write the histogram: %w", err)
	}
	return nil
}

// bounds returns the upper bounds of the Prometheus buckets, in seconds.
func bounds() []float64 {
	return []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
}

// buckets returns for each bound how many values are not above it, and the sum of all
// values in seconds.
func (h *histogram) buckets() (counts []int64, sum float64) {
	counts = make([]int64, len(bounds()))
	for _, bar := range h.hdr.Distribution() {
		if bar.Count == 0 {
			continue
		}
		sum += float64(bar.Count) * time.Duration(bar.From+(bar.To-bar.From)/2).Seconds()
		for i, bound := range bounds() {
			if time.Duration(bar.From).Seconds() <= bound {
				counts[i] += bar.Count
			}
		}
	}
	return counts, sum
}

// exposition writes the metrics of several runs in the Prometheus text format.
type exposition struct {
	out  *bufio.Writer
	runs []exposed
}

// exposed is a run with its labels.
type exposed struct {
	labels  string
	metrics Metrics
	fleet   *fleet
}

// WritePrometheus writes the metrics of runs in the Prometheus text format. The labels
// scenario, kind and side (from 1) distinguish the runs.
func WritePrometheus(w io.Writer, runs ...*Run) error {
	e := exposition{out: bufio.NewWriter(w)}
	for i, r := range runs {
		s := r.Scenario()
		r.mu.Lock()
		f := r.fleet
		r.mu.Unlock()
		if f == nil {
			continue
		}
		e.runs = append(e.runs, exposed{
			fmt.Sprintf(`scenario="%s",kind="%s",side="%d"`, labelValue(name(s)), s.Lock.Kind, i+1), f.metrics(), f,
		})
	}
	e.family("load_total", "counter", "What the clients have done.", "what", func(m Metrics) map[string]float64 {
		counts := m.counts()
		for _, key := range []string{"waiting", "holding", "backlog", "offered"} {
			delete(counts, key)
		}
		counts["cut_off"] = m.CutOff
		return floats(counts)
	})
	e.family("load_violations_total", "counter", "What must not happen.", "violation", func(m Metrics) map[string]float64 {
		violations := m.violations()
		delete(violations, "overlaps_excused") // overlaps include them
		return floats(violations)
	})
	e.family("load_overlaps_excused_total", "counter", "Overlaps after a fault that no lock survives.", "", one(func(m Metrics) float64 { return float64(m.Violations.Overlap.Excused) }))
	e.family("load_clients", "gauge", "What the clients do now.", "state", func(m Metrics) map[string]float64 {
		return map[string]float64{"waiting": float64(m.Waiting), "holding": float64(m.Holding), "thinking": float64(m.Idle), "dead": float64(m.Dead)}
	})
	e.family("load_backlog", "gauge", "Arrivals that no client was free for.", "", one(func(m Metrics) float64 { return float64(m.Backlog) }))
	e.family("load_seconds", "gauge", "How long the load has been running.", "", one(func(m Metrics) float64 { return m.Elapsed.Seconds() }))
	e.family("load_outage_seconds_total", "counter", "For how long servers did not answer.", "", one(func(m Metrics) float64 { return m.Outage.Total.Seconds() }))
	for i, l := range (Metrics{}).latencies() {
		e.histogram("load_"+underscored(l.name)+"_seconds", i)
	}
	return e.out.Flush()
}

// labelValue escapes a label value for Prometheus. Prometheus knows only these three
// escapes and rejects the whole page for any other.
func labelValue(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}

func floats(counts map[string]int64) map[string]float64 {
	all := make(map[string]float64)
	for key, n := range counts {
		all[key] = float64(n)
	}
	return all
}

// one makes a family with one value and no additional label.
func one(of func(Metrics) float64) func(Metrics) map[string]float64 {
	return func(m Metrics) map[string]float64 { return map[string]float64{"": of(m)} }
}

func underscored(name string) string { return strings.NewReplacer(" ", "_", "-", "_").Replace(name) }

func (e exposition) head(name, kind, help string) {
	fmt.Fprintf(e.out, "# HELP locktop_%s %s\n# TYPE locktop_%s %s\n", name, help, name, kind)
}

func (e exposition) family(name, kind, help, label string, of func(Metrics) map[string]float64) {
	e.head(name, kind, help)
	for _, r := range e.runs {
		values := of(r.metrics)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			labels := r.labels
			if label != "" {
				labels += fmt.Sprintf(",%s=%q", label, key)
			}
			fmt.Fprintf(e.out, "locktop_%s{%s} %g\n", name, labels, values[key])
		}
	}
}

// histogram writes distribution i of each run.
func (e exposition) histogram(name string, i int) {
	e.head(name, "histogram", "How long it took.")
	for _, r := range e.runs {
		rec := r.fleet.recorder
		rec.mu.Lock()
		h := []*histogram{rec.wait, rec.held, rec.service, rec.handoff, rec.renewLate}[i]
		counts, sum := h.buckets()
		total := h.hdr.TotalCount()
		rec.mu.Unlock()
		for b, bound := range bounds() {
			fmt.Fprintf(e.out, "locktop_%s_bucket{%s,le=\"%g\"} %d\n", name, r.labels, bound, counts[b])
		}
		fmt.Fprintf(e.out, "locktop_%s_bucket{%s,le=\"+Inf\"} %d\n", name, r.labels, total)
		fmt.Fprintf(e.out, "locktop_%s_sum{%s} %g\nlocktop_%s_count{%s} %d\n", name, r.labels, sum, name, r.labels, total)
	}
}

// jsonEvent is the JSON form of an event.
type jsonEvent struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Event  EventKind `json:"event"`
	Key    string    `json:"key,omitempty"`
	Owner  string    `json:"owner,omitempty"`
	Token  string    `json:"token,omitempty"`
	Fence  int64     `json:"fence,omitempty"`
	Shared bool      `json:"shared,omitempty"`
	Fault  FaultKind `json:"fault,omitempty"`
	Took   float64   `json:"took_ms,omitempty"`
	Text   string    `json:"text,omitempty"`

	Deadline time.Time `json:"deadline,omitzero"`
	Told     time.Time `json:"told,omitzero"`
}

// MarshalJSON returns the event in the form of `locktop load --events`.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonEvent{
		e.Seq, e.At.UTC(), e.Kind, e.Key, e.Owner(), e.Token, e.Fence, e.Shared, e.Fault, ms(e.Took), e.Text,
		e.Deadline.UTC(), e.Told.UTC(),
	})
}

// Trace writes events as a trace for Chrome or Perfetto, with a group for each lock and
// a track for each owner. It is not safe for concurrent use.
type Trace struct {
	out    *bufio.Writer
	locks  map[string]int
	tracks map[[2]int]bool
	inside map[int]time.Time // when a client acquired the lock that it holds
	free   map[int]time.Time // when a client ended its newest attempt or hold
	began  time.Time
	count  int
}

// NewTrace returns a trace that writes to w.
func NewTrace(w io.Writer) *Trace {
	t := &Trace{
		out: bufio.NewWriter(w), locks: map[string]int{}, tracks: map[[2]int]bool{},
		inside: map[int]time.Time{}, free: map[int]time.Time{},
	}
	fmt.Fprint(t.out, "[")
	return t
}

// span is an entry of the trace.
type span struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"` // µs
	Took  float64        `json:"dur,omitempty"`
	Lock  int            `json:"pid"`
	Owner int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Group string         `json:"cat,omitempty"`
	ID    uint64         `json:"id,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Add adds an event.
func (t *Trace) Add(e Event) {
	if t.began.IsZero() {
		t.began = e.At
	}
	s := span{Name: string(e.Kind), Lock: t.lock(e.Key), Owner: e.Client, Args: map[string]any{}}
	for name, value := range map[string]string{"token": e.Token, "text": e.Text, "fault": string(e.Fault)} {
		if value != "" {
			s.Args[name] = value
		}
	}
	from, to := e.At, e.At
	since, inside := t.inside[e.Client]
	switch e.Kind {
	case Arrived:
		return // drawn at the end of the wait
	case Acquired, TimedOut, Refused, Failed, Released, Expired, Lost, Abandoned:
		s.Phase = "X"
		s.Args["ended"] = string(e.Kind)
		if s.Name, from = "wait", e.At.Add(-e.Took); inside {
			s.Name, from, to = "hold", since, since.Add(e.Took)
		}
		delete(t.inside, e.Client)
		if e.Kind == Acquired {
			t.inside[e.Client] = e.At
		}
	default:
		s.Phase, s.Scope = "i", "p"
	}
	t.track(s.Lock, e)
	if s.Phase == "X" {
		if free := t.free[e.Client]; from.Before(free) {
			t.unattended(s, e, from, free)
			from = free
		}
		t.free[e.Client] = e.At
	}
	s.At, s.Took = t.micros(from), t.micros(to)-t.micros(from)
	t.write(s)
}

// unattended writes the part of a wait in which the client was busy with an earlier
// attempt. Such parts overlap, so they have no track.
func (t *Trace) unattended(s span, e Event, from, to time.Time) {
	s = span{Name: "no client", Lock: s.Lock, Owner: s.Owner, Group: "arrival", ID: e.Seq}
	s.Phase, s.At = "b", t.micros(from)
	t.write(s)
	s.Phase, s.At = "e", t.micros(to)
	t.write(s)
}

// micros returns the microseconds since the begin of the trace.
func (t *Trace) micros(at time.Time) float64 {
	return float64(at.Sub(t.began)) / float64(time.Microsecond)
}

// lock returns the group of a lock. It names a new group.
func (t *Trace) lock(key string) int {
	id, known := t.locks[key]
	if !known {
		id = len(t.locks) + 1
		t.locks[key] = id
		if key == "" {
			key = "faults"
		}
		t.write(span{Name: "process_name", Phase: "M", Lock: id, Args: map[string]any{"name": key}})
	}
	return id
}

func (t *Trace) track(lock int, e Event) {
	if id := [2]int{lock, e.Client}; e.Client > 0 && !t.tracks[id] {
		t.tracks[id] = true
		t.write(span{Name: "thread_name", Phase: "M", Lock: lock, Owner: e.Client, Args: map[string]any{"name": e.Owner()}})
	}
}

func (t *Trace) write(s span) {
	text, err := json.Marshal(s)
	if err != nil {
		return // cannot happen: numbers and text only
	}
	if t.count++; t.count > 1 {
		fmt.Fprint(t.out, ",")
	}
	fmt.Fprintf(t.out, "\n%s", text)
}

// Close writes the end of the trace.
func (t *Trace) Close() error {
	fmt.Fprint(t.out, "\n]\n")
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}
