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

// WriteCSV writes a line for each second of the run.
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

// WriteHistogram writes how long clients waited, in the percentile format of
// HdrHistogram (.hgrm), in milliseconds.
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

// WritePrometheus writes the figures in the text format of Prometheus.
func (m Metrics) WritePrometheus(w io.Writer) error {
	out := bufio.NewWriter(w)
	metric := func(name, kind, help string, lines ...string) {
		fmt.Fprintf(out, "# HELP locktop_%s %s\n# TYPE locktop_%s %s\n", name, help, name, kind)
		for _, line := range lines {
			fmt.Fprintf(out, "locktop_%s%s\n", name, line)
		}
	}
	labelled := func(label string, values map[string]int64) []string {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(values)) {
			lines = append(lines, fmt.Sprintf("{%s=%q} %d", label, key, values[key]))
		}
		return lines
	}
	counts := m.counts()
	gauges := map[string]int64{"waiting": int64(m.Waiting), "holding": int64(m.Holding), "thinking": int64(m.Idle), "dead": int64(m.Dead)}
	for _, key := range []string{"waiting", "holding", "backlog", "offered"} {
		delete(counts, key)
	}
	counts["cut_off"] = m.CutOff
	metric("load_total", "counter", "What the clients have done.", labelled("what", counts)...)
	metric("load_violations_total", "counter", "What must not happen.", labelled("violation", m.violations())...)
	metric("load_clients", "gauge", "What the clients do now.", labelled("state", gauges)...)
	metric("load_backlog", "gauge", "Arrivals that no client was free for.", fmt.Sprintf(" %d", m.Backlog))
	metric("load_seconds", "gauge", "How long the load has been running.", fmt.Sprintf(" %g", m.Elapsed.Seconds()))
	for _, l := range m.latencies() {
		name := "load_" + strings.NewReplacer(" ", "_", "-", "_").Replace(l.name) + "_seconds"
		metric(name, "summary", "How long it took.",
			fmt.Sprintf("{quantile=\"0.5\"} %g", l.latency.P50.Seconds()),
			fmt.Sprintf("{quantile=\"0.9\"} %g", l.latency.P90.Seconds()),
			fmt.Sprintf("{quantile=\"0.99\"} %g", l.latency.P99.Seconds()),
			fmt.Sprintf("_sum %g", l.latency.Mean.Seconds()*float64(l.latency.Count)),
			fmt.Sprintf("_count %d", l.latency.Count))
	}
	return out.Flush()
}

// jsonEvent is an event as a line of JSON.
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
}

// MarshalJSON writes the event as `locktop load --events` does.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonEvent{
		e.Seq, e.At.UTC(), e.Kind, e.Key, e.Owner(), e.Token, e.Fence, e.Shared, e.Fault, ms(e.Took), e.Text,
	})
}

// Trace writes events as a trace for Chrome or Perfetto: a group for each lock,
// in it a track for each owner. It is used from one goroutine at a time.
type Trace struct {
	out    *bufio.Writer
	locks  map[string]int
	tracks map[[2]int]bool
	began  time.Time
	count  int
}

// NewTrace returns a trace that is written to w.
func NewTrace(w io.Writer) *Trace {
	t := &Trace{out: bufio.NewWriter(w), locks: map[string]int{}, tracks: map[[2]int]bool{}}
	fmt.Fprint(t.out, "[")
	return t
}

// span is an entry of a trace.
type span struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"` // µs
	Took  float64        `json:"dur,omitempty"`
	Lock  int            `json:"pid"`
	Owner int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Add takes in an event.
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
	from := e.At
	switch e.Kind {
	case Arrived:
		return // the wait begins here, and is drawn when it ends
	case Acquired, TimedOut, Refused:
		s.Name, s.Phase = "wait", "X"
	case Released, Expired, Lost, Abandoned:
		s.Name, s.Phase = "hold", "X"
		s.Args["ended"] = string(e.Kind)
	default:
		s.Phase, s.Scope = "i", "p"
	}
	if s.Phase == "X" {
		from = e.At.Add(-e.Took)
		s.Took = float64(e.Took) / float64(time.Microsecond)
	}
	s.At = float64(from.Sub(t.began)) / float64(time.Microsecond)
	t.track(s.Lock, e)
	t.write(s)
}

// lock returns the group of a lock, and names it when it is new.
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
	if id := [2]int{lock, e.Client}; !t.tracks[id] {
		t.tracks[id] = true
		t.write(span{Name: "thread_name", Phase: "M", Lock: lock, Owner: e.Client, Args: map[string]any{"name": e.Owner()}})
	}
}

func (t *Trace) write(s span) {
	text, err := json.Marshal(s)
	if err != nil {
		return // numbers and texts can be written
	}
	if t.count++; t.count > 1 {
		fmt.Fprint(t.out, ",")
	}
	fmt.Fprintf(t.out, "\n%s", text)
}

// Close ends the trace.
func (t *Trace) Close() error {
	fmt.Fprint(t.out, "\n]\n")
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}
