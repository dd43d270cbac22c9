package holds

import (
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/internal/cache"
)

// Bounds of Stats.
const (
	statHolds    = 32               // finished holds of a lock
	maxStatHolds = 20_000           // of all locks
	minHolds     = 5                // with fewer there is no median
	freeWindow   = 10 * time.Second // half of the time in which free time is counted, at most
	maxChecks    = 1200             // at one a second, a share is that of 10 to 20 minutes
	minChecks    = 5                // with fewer there is no share
)

// Stats know how the latest holds of each lock ended, how long they lasted and how long the lock was free
// between them. The zero value is empty. It is for one goroutine at a time.
type Stats struct {
	ledger   Ledger
	requests cache.Map[keyspace.ID, requestStats]
}

// requestStats count the checks of a lock for requests of other clients.
type requestStats struct {
	checks int // halved at maxChecks
	asked  int // those that found a request
}

// Learn records events, in their order.
func (s *Stats) Learn(events []keyspace.Event) {
	s.ledger.Most, s.ledger.OfLock = maxStatHolds, statHolds
	for i := range events {
		s.ledger.Event(&events[i])
	}
}

// Removed notes that a lock is gone at a time.
func (s *Stats) Removed(id keyspace.ID, at time.Time) { s.ledger.gone(id, at) }

// Add adds what other has recorded of locks that s does not know. other must not be used later.
func (s *Stats) Add(other *Stats) {
	s.ledger.add(&other.ledger)
	s.requests.PutAll(&other.requests)
}

// Checked records checks of a held lock, of which some found that another client had asked for it
// within the last second.
func (s *Stats) Checked(id keyspace.ID, checks, asked int) {
	id = id.OnAnyNode()
	known, _ := s.requests.Get(id)
	known.checks, known.asked = known.checks+checks, known.asked+asked
	for known.checks >= maxChecks {
		known.checks, known.asked = known.checks/2, known.asked/2
	}
	s.requests.Put(id, known)
}

// askedPercent returns Lock.AskedPercent.
func (s *Stats) askedPercent(id keyspace.ID) int {
	r, _ := s.requests.Get(id)
	if r.checks < minChecks {
		return 0
	}
	return (100*r.asked + r.checks/2) / r.checks
}

// Annotate records a read of a lock at a time, and sets its statistics.
func (s *Stats) Annotate(l *keyspace.Lock, at time.Time) {
	id := l.ID().OnAnyNode()
	l.ExpiryStreak, l.MedianHold, l.Past, l.AskedPercent = 0, 0, nil, s.askedPercent(id)
	s.ledger.read(l, at)
	a := s.ledger.locks[id]
	if a == nil {
		return
	}
	lengths := a.lengths()
	if n := len(lengths); n >= minHolds {
		l.MedianHold = lengths[n/2].length
	}
	l.ExpiryStreak = a.expiryStreak()
	if l.ExpiryStreak == 0 && a.contended.IsZero() {
		return
	}
	l.Past = &keyspace.Past{ContendedAt: a.contended, WaiterSeen: a.waiterSeen}
	if n := len(a.Holds); n > 0 {
		l.Past.TTL = a.Holds[n-1].TTL
	}
	if n := len(lengths); n > 0 { // of at most statHolds, p99 is the longest
		l.Past.HoldP99, l.Past.AtLeast = lengths[n-1].length, lengths[n-1].expired
	}
	if !a.contended.IsZero() {
		l.Past.FreeSince = keyspace.Later(keyspace.Later(a.contended, a.Whole), at.Truncate(freeWindow).Add(-freeWindow))
		l.Past.HandOffP50, l.Past.Free = a.handOffs(l.Past.FreeSince)
	}
}

// length is how long a hold lasted.
type length struct {
	length  time.Duration
	expired bool // the work may have taken longer
}

// lengths returns the lengths of the holds whose begin and end are known, the shortest first.
func (a *Account) lengths() (all []length) {
	for _, h := range a.Holds {
		if least, most := h.Held(time.Time{}); h.To.Grade == Exact && most > 0 {
			all = append(all, length{least, h.End.Kind == keyspace.Expired})
		}
	}
	slices.SortFunc(all, func(a, b length) int { return int(a.length - b.length) })
	return all
}

// expiryStreak returns how many of the latest holds in a row ended by expiry. One that was renewed is none of
// them: its renewals stopped, which no longer TTL mends. Nor is one that ended while the server could not be read.
func (a *Account) expiryStreak() (n int) {
	for _, h := range slices.Backward(a.Holds) {
		if !h.Lasts() && (h.End.Kind != keyspace.Expired || h.End.Proof == NoProof || h.Renewals > 0) {
			break
		}
		if !h.Lasts() {
			n++
		}
	}
	return n
}

// Gaps yields the times in which nobody held the lock, from the end of a hold until another one began,
// as far as both are known. A gap may have no length.
func (a *Account) Gaps(yield func(from, to time.Time) bool) {
	var free time.Time // end of the hold that ended last; zero = one lasts, or its end is not known
	for _, h := range a.Holds {
		began, _ := h.From.Latest()
		if !free.IsZero() && h.From.Grade != NotAfter && !began.Before(free) && !yield(free, began) {
			return
		}
		switch {
		case h.Lasts():
			return
		case h.To.Grade != Exact && !h.To.At.Before(free):
			free = time.Time{}
		case h.To.Grade == Exact:
			free = keyspace.Later(free, h.To.At)
		}
	}
}

// handOffs returns the median of the latest hand-offs, from the end of a hold, or from the first waiter after
// it, to the next hold, and how long the lock was free since a time. The median is 0 if too few are known.
func (a *Account) handOffs(since time.Time) (median, free time.Duration) {
	var all []time.Duration
	for from, to := range a.Gaps {
		free += max(0, to.Sub(keyspace.Later(from, since)))
		waited := from.Equal(to) // handed over between two reads
		first := to
		for w := range a.Waits {
			if w.Source == Stored && w.Seen.Before(to) && !w.Proven.Before(from) {
				first, waited = keyspace.Earliest(first, keyspace.Later(w.Seen, from)), true
			}
		}
		if waited {
			all = append(all, to.Sub(first))
		}
	}
	if slices.Sort(all); len(all) >= minHolds {
		median = all[len(all)/2]
	}
	return median, free
}
