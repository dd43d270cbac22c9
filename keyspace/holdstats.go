package keyspace

import (
	"slices"
	"time"
)

// Bounds of holdStats.
const (
	maxHolds = 32 // finished holds per lock
	minHolds = 5  // with fewer there is no median
)

// holdStats records how the holds of each lock ended and how long they lasted. The zero
// value is empty. Locks without recent events are forgotten.
type holdStats struct {
	byLock twoGenCache[lockStats]
}

// lockStats are the statistics of one lock.
type lockStats struct {
	holds   []time.Duration // the latest
	overrun int             // consecutive holds, the latest included, that ended by expiry
}

// learn records the holds that ended.
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

// annotate sets the statistics of a lock.
func (h *holdStats) annotate(l *Lock) {
	known, _ := h.byLock.get(l.ID())
	l.Overrun = known.overrun
	l.Typical = 0
	if n := len(known.holds); n >= minHolds {
		l.Typical = slices.Sorted(slices.Values(known.holds))[n/2]
	}
}
