package loadgen

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// EventKind says what happened.
type EventKind string

// What happens in a run.
const (
	Arrived    EventKind = "arrive"  // a client wants a key
	Acquired   EventKind = "acquire" // and has it, after Took
	TimedOut   EventKind = "timeout" // or has no patience left, after Took
	Refused    EventKind = "refused" // or has asked often enough
	Failed     EventKind = "error"   // or got an error; Text has it
	Released   EventKind = "release" // a hold ended in time, after Took
	Expired    EventKind = "expire"  // its time ran out under the holder's feet
	Lost       EventKind = "lost"    // it was taken away
	Abandoned  EventKind = "abandon" // the holder crashed, or forgot it
	FaultBegan EventKind = "fault"   // a fault begins
	FaultEnded EventKind = "healed"  // and is over
	StageBegan EventKind = "stage"   // Text says which

	Overlapped     EventKind = "overlap"          // two inside at once by their leases, for Took
	WorkOverlapped EventKind = "work-overlap"     // two worked at once, for Took; the lease of the first was over
	WasUntold      EventKind = "untold"           // a lease was over and its holder was not told
	LostAlone      EventKind = "unexplained-loss" // a lease that is renewed was lost, and nothing explains it
	WasOvertaken   EventKind = "overtaken"        // a fair lock served somebody who came later, after Took in the queue
	NumberFell     EventKind = "fence-order"      // a fencing number was not larger than the one before
	LateWork       EventKind = "late-work"        // work Took after the own deadline
	FencedWrite    EventKind = "fenced"           // a stale write was refused
	WriteAccepted  EventKind = "corrupt"          // a stale write was not refused
	ForeignUnlock  EventKind = "foreign-unlock"   // a release removed somebody else's lock
	StuckKey       EventKind = "stuck"            // nobody could take a key, for Took
)

// violationKinds are what an oracle finds, the worst first.
func violationKinds() []EventKind {
	return []EventKind{
		Overlapped, ForeignUnlock, WasUntold, LostAlone, WasOvertaken, NumberFell,
		WriteAccepted, FencedWrite, WorkOverlapped, LateWork, StuckKey,
	}
}

// Event is one moment of a run, timed in the process that made it happen: where
// an inspector sees what the server tells it later, this is when it was.
type Event struct {
	Seq    uint64 // counts from 1, without gaps
	At     time.Time
	Kind   EventKind
	Key    string // of the lock
	Client int    // counted from 1; 0 = none
	Token  string
	Fence  int64
	Shared bool // held to read
	Fault  FaultKind
	Took   time.Duration
	Text   string // may hold bytes from the server

	Deadline time.Time // of a hold that begins or ends: until when its lease lasts, by the lease
	Told     time.Time // of a hold that ends: when its holder learned that the lease was over; zero if it did not before it left
}

// Owner returns the label of the event's client, "" if it has none.
func (e Event) Owner() string {
	if e.Client == 0 {
		return ""
	}
	return ownerOf(e.Client)
}

func ownerOf(client int) string { return fmt.Sprintf("client-%d", client) }

// numberOf returns the client of a label, from 0; −1 if it is none of ours.
func numberOf(owner string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(owner, "client-"))
	if err != nil {
		return -1
	}
	return n - 1
}

// HistoryEvents is how many events a run remembers.
const HistoryEvents = 16_384

// eventRing keeps the newest events. All methods may be called from any goroutine.
type eventRing struct {
	mu   sync.Mutex
	ring []Event // event n is at n % HistoryEvents
	next uint64
	tell func(Event) // nil: nobody listens
}

func newEventRing(tell func(Event)) *eventRing { return &eventRing{tell: tell} }

// note adds an event, and gives it its number.
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
	if j.tell != nil {
		j.tell(e)
	}
}

// since returns the events after one that was seen, oldest first, as far as they
// are remembered.
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
