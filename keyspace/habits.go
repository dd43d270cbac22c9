package keyspace

import (
	"slices"
	"time"
)

// continued returns a snapshot with what the one before it tells: since when
// each holder has been there, and how often locks were renewed.
//
// A holder whose hold does not tell its begin began at the look that first
// showed it, unless nobody had looked there before: then its begin is unknown.
func continued(before, now Snapshot) Snapshot {
	known := byID(before.Locks)
	locks := slices.Clone(now.Locks)
	for i := range locks {
		l := &locks[i]
		was, seen := known[l.ID()]
		began := time.Time{}
		if seen || before.Complete {
			began = now.At
		}
		l.Holders = since(was, l.Holders, began)
		if seen && sharesHolder(was, *l) {
			l.Renewals, l.Renewed = was.Renewals, was.Renewed
			if later(was.Expires, l.Expires) {
				l.Renewals++
				l.Renewed = now.At
			}
		}
	}
	now.Locks = locks
	return now
}

// since returns the holders with the begins of their holds, as far as known.
func since(was Lock, holders []Holder, began time.Time) []Holder {
	holders = slices.Clone(holders)
	for i := range holders {
		h := &holders[i]
		if !h.Since.IsZero() {
			continue
		}
		h.Since = began
		if before, held := was.holder(h.ID); held {
			h.Since = before.Since
		}
	}
	return holders
}

// Bounds of what habits keep.
const (
	holdsKept = 32 // finished holds of a lock
	holdsMin  = 5  // below which they are not typical of anything
)

// habits remembers how long the holds of each lock were. The zero value is
// empty. Locks that were not heard of for long are forgotten.
type habits struct {
	holds generations[[]time.Duration]
}

// learn takes in the holds that ended.
func (h *habits) learn(events []Event) {
	for _, e := range events {
		if e.Held > 0 {
			h.add(e.Lock.ID(), e.Held)
		}
	}
}

func (h *habits) add(id ID, held time.Duration) {
	holds, _ := h.holds.find(id)
	holds = append(slices.Clone(holds), held)
	h.holds.put(id, holds[max(0, len(holds)-holdsKept):])
}

// typical returns the median of the lock's finished holds, 0 if too few are
// known.
func (h *habits) typical(id ID) time.Duration {
	holds, _ := h.holds.find(id)
	if len(holds) < holdsMin {
		return 0
	}
	return slices.Sorted(slices.Values(holds))[len(holds)/2]
}
