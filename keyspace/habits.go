package keyspace

import (
	"slices"
	"time"
)

// continued returns a snapshot with what the one before it tells of each lock: see
// [carried].
func continued(before, now Snapshot) Snapshot {
	known := byID(before.Locks)
	locks := slices.Clone(now.Locks)
	for i, l := range locks {
		was, seen := known[l.ID()]
		began := time.Time{}
		if seen || before.Complete {
			began = now.At
		}
		locks[i] = carried(was, l, seen, now.At, began, jitter)
	}
	now.Locks = locks
	return now
}

// carried returns a look at a lock with what the look before it tells: since when
// each holder and each waiter has been there, how often the lock was renewed,
// who was passed over.
//
// Somebody who does not tell its begin began at the look that first showed it,
// unless nobody had looked there before: then its begin is unknown. began is
// the time of this look, or zero in that case. Readings of one deadline differ by
// blur.
func carried(was, l Lock, seen bool, now, began time.Time, blur time.Duration) Lock {
	l.Holders = since(was, l.Holders, began)
	l.Waiters = waiting(was, l, began)
	if len(l.Holders) == 0 && len(l.Waiters) > 0 {
		l.FreeFrom = now
		if !was.FreeFrom.IsZero() {
			l.FreeFrom = was.FreeFrom
		}
	}
	if !seen || !sharesHolder(was, l) {
		return l
	}
	l.Renewals, l.Renewed, l.Grown = was.Renewals, was.Renewed, grown(was, l)
	switch {
	case later(was.Expires, l.Expires, blur):
		l.Renewals++
		l.Renewed = now
	case was.Expires.Sub(l.Expires).Abs() <= blur:
		steady(was, &l, blur)
	}
	return l
}

// steady keeps deadlines as they were read first: they have not moved, only the
// readings differ.
func steady(was Lock, l *Lock, blur time.Duration) {
	for i := range l.Holders {
		h := &l.Holders[i]
		if before, held := was.holder(h.ID); held && before.Expires.Sub(h.Expires).Abs() <= blur {
			h.Expires = before.Expires
		}
	}
	l.Expires = was.Expires
}

// grown is how often a holder has entered again since it last left once.
func grown(was, l Lock) int {
	before, now := was.Count(), l.Count()
	switch {
	case now > before:
		return was.Grown + 1
	case now < before:
		return 0
	default:
		return was.Grown
	}
}

// since returns the holders with the begins of their holds, and since when they
// are not connected any more, as far as known.
func since(was Lock, holders []Holder, began time.Time) []Holder {
	holders = slices.Clone(holders)
	for i := range holders {
		h := &holders[i]
		before, held := was.holder(h.ID)
		if held {
			h.Left = before.Left
		}
		switch {
		case !h.Since.IsZero():
		case held:
			h.Since = before.Since
		default:
			h.Since = began
		}
	}
	return holders
}

// waiting returns the waiters with the begins of their waits, as far as known,
// and with how many have overtaken them.
func waiting(was, l Lock, began time.Time) []Waiter {
	waiters := slices.Clone(l.Waiters)
	var came []string
	for _, h := range l.Holders {
		if _, held := was.holder(h.ID); !held {
			came = append(came, h.ID)
		}
	}
	for i := range waiters {
		w := &waiters[i]
		at := slices.IndexFunc(was.Waiters, func(before Waiter) bool { return before.ID == w.ID })
		if at < 0 {
			if w.Since.IsZero() {
				w.Since = began
			}
			continue
		}
		w.Passed = was.Waiters[at].Passed
		for _, id := range came {
			first := slices.ContainsFunc(was.Waiters[:at], func(before Waiter) bool { return before.ID == id })
			if !first {
				w.Passed++
			}
		}
		if w.Since.IsZero() {
			w.Since = was.Waiters[at].Since
		}
	}
	return waiters
}

// Bounds of what habits keep.
const (
	holdsKept = 32 // finished holds of a lock
	holdsMin  = 5  // below which they are not typical of anything
)

// habits remembers how the holds of each lock have ended, and how long they
// were. The zero value is empty. Locks that were not heard of for long are
// forgotten.
type habits struct {
	known generations[habit]
}

// habit is what is remembered of one lock.
type habit struct {
	holds   []time.Duration // the latest
	overrun int             // the latest in a row that ended by expiry
}

// learn takes in the holds that ended.
func (h *habits) learn(events []Event) {
	for _, e := range events {
		if !e.Kind.Ends() {
			continue
		}
		known, _ := h.known.find(e.Lock.ID())
		if e.Held > 0 {
			holds := append(slices.Clone(known.holds), e.Held)
			known.holds = holds[max(0, len(holds)-holdsKept):]
		}
		known.overrun++
		if e.Kind != Expired {
			known.overrun = 0
		}
		h.known.put(e.Lock.ID(), known)
	}
}

// tell fills in what is known of a lock's past.
func (h *habits) tell(l *Lock) {
	known, _ := h.known.find(l.ID())
	l.Overrun = known.overrun
	l.Typical = 0
	if n := len(known.holds); n >= holdsMin {
		l.Typical = slices.Sorted(slices.Values(known.holds))[n/2]
	}
}
