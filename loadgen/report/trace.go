package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"locktop/loadgen"
)

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
func (t *Trace) Add(e loadgen.Event) {
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
	case loadgen.Arrived:
		return // drawn at the end of the wait
	case loadgen.Acquired, loadgen.TimedOut, loadgen.Refused, loadgen.Failed, loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Abandoned:
		s.Phase = "X"
		s.Args["ended"] = string(e.Kind)
		if s.Name, from = "wait", e.At.Add(-e.Took); inside {
			s.Name, from, to = "hold", since, since.Add(e.Took)
		}
		delete(t.inside, e.Client)
		if e.Kind == loadgen.Acquired {
			t.inside[e.Client] = e.At
		}
	default:
		s.Phase, s.Scope = "i", "p"
	}
	t.track(s.Lock, e)
	if s.Phase == "X" {
		if free := t.free[e.Client]; from.Before(free) {
			t.writeBacklog(s, e, from, free)
			from = free
		}
		t.free[e.Client] = e.At
	}
	s.At, s.Took = t.micros(from), t.micros(to)-t.micros(from)
	t.write(s)
}

// writeBacklog writes the part of a wait in which the client was busy with an earlier
// attempt. Such parts overlap, so they have no track.
func (t *Trace) writeBacklog(s span, e loadgen.Event, from, to time.Time) {
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
		key = cmp.Or(key, "faults")
		t.write(span{Name: "process_name", Phase: "M", Lock: id, Args: map[string]any{"name": key}})
	}
	return id
}

func (t *Trace) track(lock int, e loadgen.Event) {
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
