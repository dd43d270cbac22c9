package keyspace

import (
	"slices"
	"time"
)

// Bounds of what habits keep.
const (
	maxHolds = 32 // finished holds of a lock
	minHolds = 5  // below which they are not typical of anything
)

// holdStats remembers how the holds of each lock have ended, and how long they
// were. The zero value is empty. Locks that were not heard of for long are
// forgotten.
type holdStats struct {
	byLock twoGenCache[lockStats]
}

// lockStats is what is remembered of one lock.
type lockStats struct {
	holds   []time.Duration // the latest
	overrun int             // the latest in a row that ended by expiry
}

// learn takes in the holds that ended.
func (h *holdStats) learn(events []Event) {
	for _, e := range events {
		if !e.Kind.Ends() {
			continue
		}
		known, _ := h.byLock.get(e.Lock.ID())
		if e.Held > 0 {
			holds := append(slices.Clone(known.holds), e.Held)
			known.holds = holds[max(0, len(holds)-maxHolds):]
		}
		known.overrun++
		if e.Kind != Expired {
			known.overrun = 0
		}
		h.byLock.put(e.Lock.ID(), known)
	}
}

// annotate fills in what is known of a lock's past.
func (h *holdStats) annotate(l *Lock) {
	known, _ := h.byLock.get(l.ID())
	l.Overrun = known.overrun
	l.Typical = 0
	if n := len(known.holds); n >= minHolds {
		l.Typical = slices.Sorted(slices.Values(known.holds))[n/2]
	}
}
