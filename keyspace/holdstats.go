package keyspace

import (
	"slices"
	"time"

	"locktop/keyspace/internal/cache"
)

// Bounds of HoldStats.
const (
	maxHolds = 32 // finished holds per lock
	minHolds = 5  // with fewer there is no median
)

// HoldStats records how the holds of each lock ended and how long they lasted. The zero
// value is empty. Locks without recent events are forgotten.
type HoldStats struct {
	byLock cache.Map[ID, lockStats]
}

// lockStats are the statistics of one lock.
type lockStats struct {
	holds   []time.Duration // the latest
	overrun int             // consecutive holds, the latest included, that ended by expiry
}

// Learn records the holds that ended.
func (h *HoldStats) Learn(events []Event) {
	for _, e := range events {
		if !e.Kind.Ends() {
			continue
		}
		known, _ := h.byLock.Get(e.Lock.ID())
		if e.Held > 0 {
			holds := append(slices.Clone(known.holds), e.Held)
			known.holds = holds[max(0, len(holds)-maxHolds):]
		}
		known.overrun++
		if e.Kind != Expired {
			known.overrun = 0
		}
		h.byLock.Put(e.Lock.ID(), known)
	}
}

// Annotate sets the statistics of a lock.
func (h *HoldStats) Annotate(l *Lock) {
	known, _ := h.byLock.Get(l.ID())
	l.Overrun = known.overrun
	l.Typical = 0
	if n := len(known.holds); n >= minHolds {
		l.Typical = slices.Sorted(slices.Values(known.holds))[n/2]
	}
}
