package loadgen

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"locktop/loadgen/oracle"
)

// EventKind is the kind of an event. Every violation that the oracle reports is an event, too: its
// kind is the name of the violation, and Took is the length of its evidence.
type EventKind string

// Kinds of events.
const (
	Arrived    EventKind = "arrive"  // a client arrives to acquire a key
	Acquired   EventKind = "acquire" // it acquired the key, after Took
	Counted    EventKind = "count"   // it entered or left its key again, with enter-every; Depth is the new count
	Renewed    EventKind = "renew"   // its lease was renewed
	TimedOut   EventKind = "timeout" // its patience ended, after Took
	Refused    EventKind = "refused" // it used up its tries
	Failed     EventKind = "error"   // an attempt or a release failed; Text is the error
	Released   EventKind = "release" // a hold ended in time, after Took
	Expired    EventKind = "expire"  // a hold outlived its lease
	Lost       EventKind = "lost"    // a hold lost its lock
	Abandoned  EventKind = "abandon" // the holder crashed, or never releases
	FaultBegan EventKind = "fault"   // a fault begins
	FaultEnded EventKind = "healed"  // a fault ends
	StageBegan EventKind = "stage"   // a stage begins; Text describes it

	// Incomplete is an event of a load by several processes only: figures of one of them are
	// missing from now on. Text is a sentence.
	Incomplete EventKind = "incomplete"
)

// Event is an event of a run. At is the time in the process of the clients. An
// inspector, which reads from the server, sees the event later.
type Event struct {
	Seq    uint64 // from 1, without gaps
	At     time.Time
	Kind   EventKind
	Key    string   // lock
	More   []string // further keys of the same attempt or hold
	Client int      // counted from 1; 0 = none
	Token  string
	Fence  int64
	Shared bool // for reading
	Depth  int  // how often the holder is inside; 0 = the event does not say it
	Fault  FaultKind
	Node   int // server that a fault affects, from 1; 0 = all
	Took   time.Duration
	Text   string // may hold bytes from the server

	Deadline time.Time // begin and end of a hold: end of the lease
	Told     time.Time // end of a hold: when the lease notified its holder; zero if it did not before the holder left
}

// Owner returns the label of the event's client, "" if it has none.
func (e Event) Owner() string {
	if e.Client == 0 {
		return ""
	}
	return oracle.ClientLabel(e.Client)
}

// EachKey returns the events with one event for each key instead of one for several.
func EachKey(events []Event) []Event {
	if !slices.ContainsFunc(events, func(e Event) bool { return len(e.More) > 0 }) {
		return events
	}
	var all []Event
	for _, e := range events {
		more := e.More
		e.More = nil
		all = append(all, e)
		for _, e.Key = range more {
			all = append(all, e)
		}
	}
	return all
}

// numberOf returns the client number of a label, from 0; −1 if the label is not ours.
func numberOf(owner string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(owner, "client-"))
	return n - 1
}

// HistoryEvents is the number of events that a run keeps.
const HistoryEvents = 16_384

// eventRing keeps the newest events. All methods are safe for concurrent use.
type eventRing struct {
	mu   sync.Mutex
	ring []Event // event n is at (n-1) % HistoryEvents
	next uint64
	tell []func(Event)
}

// note adds an event and sets its number.
func (j *eventRing) note(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	e.Seq = j.next
	if len(j.ring) < HistoryEvents {
		j.ring = append(j.ring, e)
	} else {
		j.ring[(e.Seq-1)%HistoryEvents] = e
	}
	for _, tell := range j.tell {
		tell(e)
	}
}

// observe adds the event of a step of a client, if it has one.
func (j *eventRing) observe(s step, r *round) {
	e := Event{At: r.at, Kind: outcomes[r.how].event, Key: r.names[0], More: r.names[1:], Client: r.client + 1, Shared: r.shared}
	switch s {
	case asked:
		e.At, e.Kind = r.due, Arrived
	case gaveUp:
		e.Took = r.at.Sub(r.due)
	case entered:
		e.Token, e.Fence, e.Took, e.Deadline = r.lease.token, r.lease.fence, r.at.Sub(r.due), r.lease.Deadline()
	case freed:
		e.Token, e.Fence, e.Took, e.Deadline, e.Told = r.lease.token, r.lease.fence, r.left.Sub(r.hold.Began), r.deadline, r.told
	default:
		return
	}
	if e.Kind == Failed {
		e.Text = r.err.Error()
	}
	if e.Kind != "" {
		j.note(e)
	}
}

// since returns the kept events after number seen, oldest first.
func (j *eventRing) since(seen uint64) []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next > HistoryEvents {
		seen = max(seen, j.next-HistoryEvents)
	}
	if seen >= j.next {
		return nil
	}
	events := make([]Event, 0, j.next-seen)
	for n := seen; n < j.next; n++ {
		events = append(events, j.ring[n%HistoryEvents])
	}
	return events
}

// jsonEvent is the JSON form of an event.
type jsonEvent struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Event  EventKind `json:"event"`
	Key    string    `json:"key,omitempty"`
	More   []string  `json:"more_keys,omitempty"`
	Owner  string    `json:"owner,omitempty"`
	Token  string    `json:"token,omitempty"`
	Fence  int64     `json:"fence,omitempty"`
	Shared bool      `json:"shared,omitempty"`
	Depth  int       `json:"depth,omitempty"`
	Fault  FaultKind `json:"fault,omitempty"`
	Took   float64   `json:"took_ms,omitempty"`
	Text   string    `json:"text,omitempty"`

	Deadline time.Time `json:"deadline,omitzero"`
	Told     time.Time `json:"told,omitzero"`
}

// MarshalJSON returns the event in the form of `locktop load --events`.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonEvent{
		e.Seq, e.At.UTC(), e.Kind, e.Key, e.More, e.Owner(), e.Token, e.Fence, e.Shared, e.Depth, e.Fault, math.Round(float64(e.Took)/float64(time.Microsecond)) / 1000, e.Text,
		e.Deadline.UTC(), e.Told.UTC(),
	})
}
