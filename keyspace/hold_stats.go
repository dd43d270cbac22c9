package keyspace

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace/internal/cache"
)

// Bounds of HoldStats.
const (
	maxHolds   = 32               // finished holds per lock, and as many times between them
	minHolds   = 5                // with fewer there is no median
	freeWindow = 10 * time.Second // half of the time in which free time is counted, at most
	maxChecks  = 1200             // at one a second, a share is that of 10 to 20 minutes
	minChecks  = 5                // with fewer there is no share
)

// HoldStats records how the holds of each lock ended, how long they lasted and how long the
// lock was free between them, on whichever server the lock was. The zero value is empty. Locks
// without recent events are forgotten.
type HoldStats struct {
	byLock   cache.Map[ID, *lockStats]
	requests cache.Map[ID, requestStats]
}

// requestStats count the checks of a lock for requests of other clients.
type requestStats struct {
	checks int // halved at maxChecks
	asked  int // those that found a request
}

// lockStats are the statistics of one lock.
type lockStats struct {
	holds   []finishedHold  // the latest
	gaps    []time.Duration // the latest hand-offs: from the end of a hold, or from the first waiter after it, to the next hold
	overrun int             // consecutive holds, the latest included, that ended by expiry
	ttl     time.Duration   // of the latest hold, when it began or was renewed; 0 = unknown
	freed   time.Time       // end of the last hold; zero = unknown, or the lock is held

	unheld       time.Time // since when the lock has had waiters and no holder; zero = it has not
	waiterSeen   time.Time // when the lock had waiters last
	waited       time.Time // since when it has had waiters, without a break of maxBreak; zero = it has none
	older, newer freeTime  // since waited, or later
}

// finishedHold is how long a hold lasted.
type finishedHold struct {
	held    time.Duration
	expired bool // the work may have taken longer
}

// freeTime is how long a lock was free after a time.
type freeTime struct {
	since time.Time
	free  time.Duration
}

// Past is what the finished holds of a lock say. It is immutable.
type Past struct {
	TTL         time.Duration `json:"ttl_ns,omitzero"`            // of the latest hold, when it began or was renewed; 0 = unknown
	HoldP50     time.Duration `json:"hold_p50_ns,omitzero"`       // 0 = too few holds were seen
	HoldP99     time.Duration `json:"hold_p99_ns,omitzero"`       // 0 = unknown
	AtLeast     bool          `json:"hold_p99_at_least,omitzero"` // the hold of HoldP99 ended by expiry: its work may have taken longer
	HandOffP50  time.Duration `json:"hand_off_p50_ns,omitzero"`   // of the times between two holds; 0 = too few were seen
	ContendedAt time.Time     `json:"contended_at,omitzero"`      // since when the lock has had waiters, without a break of 1 s; zero = it has none
	WaiterSeen  time.Time     `json:"waiter_seen,omitzero"`       // when it had waiters last
	FreeSince   time.Time     `json:"free_since,omitzero"`        // begin of the time in which Free was counted: ContendedAt, or 10 to 20 s ago
	Free        time.Duration `json:"free_ns,omitzero"`           // time without a holder since FreeSince, up to the last acquire
}

// Learn records the holds that began, were renewed or ended.
func (h *HoldStats) Learn(events []Event) {
	for i := range events {
		e := &events[i]
		id := e.Lock.ID().OnAnyNode()
		switch {
		case e.Kind == Acquired:
			h.of(id).begin(e)
		case e.Kind.Ends():
			h.of(id).end(e)
		case e.Kind == Renewed:
			if known, ok := h.byLock.Get(id); ok {
				known.ttl = leaseOf(e)
			}
		}
	}
}

// of returns the statistics of a lock, which may be new.
func (h *HoldStats) of(id ID) *lockStats {
	return h.byLock.GetOrAdd(id, func() *lockStats { return new(lockStats) })
}

// leaseOf returns the time from an event that sets a deadline to that deadline; 0 = unknown.
func leaseOf(e *Event) time.Duration {
	deadline := cmp.Or(e.Holder.Expires, e.Lock.Expires)
	if deadline.IsZero() {
		return 0
	}
	const read = 100 * time.Millisecond // the event is read shortly after the deadline is set
	return (deadline.Sub(e.At) + read - 1).Truncate(read)
}

// begin records a new holder. One that joins others ends no free time.
func (s *lockStats) begin(e *Event) {
	s.ttl = leaseOf(e)
	if !s.freed.IsZero() && !s.waited.IsZero() && len(e.Lock.Holders) <= 1 {
		switch gap := max(0, e.At.Sub(s.freed)); {
		case !s.unheld.IsZero():
			s.gaps = latest(s.gaps, max(0, e.At.Sub(s.unheld)))
		case gap == 0: // handed over between two reads
			s.gaps = latest(s.gaps, 0)
		}
		s.newer.free += max(0, min(e.At.Sub(s.freed), e.At.Sub(s.waited)))
	}
	s.freed, s.unheld = time.Time{}, time.Time{}
}

// end records a finished hold.
func (s *lockStats) end(e *Event) {
	if e.Held > 0 {
		s.holds = latest(s.holds, finishedHold{e.Held, e.Kind == Expired})
	}
	s.overrun++
	if e.Kind != Expired {
		s.overrun = 0
	}
	s.freed = e.Ended()
	if e.Kind == Vanished || e.Kind == Lost {
		s.freed = time.Time{}
	}
}

// latest returns a list with one more element, without its first one if there are maxHolds.
func latest[T any](all []T, one T) []T {
	if len(all) == maxHolds {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, one)
}

// Add adds what other has recorded.
func (h *HoldStats) Add(other *HoldStats) {
	h.byLock.PutAll(&other.byLock)
	h.requests.PutAll(&other.requests)
}

// Checked records checks of a held lock, of which some found that another client had asked for it
// within the last second.
func (h *HoldStats) Checked(id ID, checks, asked int) {
	id = id.OnAnyNode()
	known, _ := h.requests.Get(id)
	known.checks, known.asked = known.checks+checks, known.asked+asked
	for known.checks >= maxChecks {
		known.checks, known.asked = known.checks/2, known.asked/2
	}
	h.requests.Put(id, known)
}

// askedPercent returns Lock.AskedPercent.
func (h *HoldStats) askedPercent(id ID) int {
	r, _ := h.requests.Get(id)
	if r.checks < minChecks {
		return 0
	}
	return (100*r.asked + r.checks/2) / r.checks
}

// Annotate sets the statistics of a lock that was read at a time.
func (h *HoldStats) Annotate(l *Lock, at time.Time) {
	l.ExpiryStreak, l.MedianHold, l.Past, l.AskedPercent = 0, 0, nil, h.askedPercent(l.ID().OnAnyNode())
	known, ok := h.byLock.Get(l.ID().OnAnyNode())
	if !ok {
		return
	}
	known.contended(l, at)
	l.ExpiryStreak = known.overrun
	sorted := known.sorted()
	if n := len(sorted); n >= minHolds {
		l.MedianHold = sorted[n/2].held
	}
	if known.overrun > 0 || !known.waited.IsZero() {
		l.Past = known.past(sorted)
	}
}

// Removed notes that a lock is gone, and so are its waiters.
func (h *HoldStats) Removed(id ID) {
	if known, ok := h.byLock.Get(id.OnAnyNode()); ok {
		known.unheld = time.Time{}
	}
}

// maxBreak is how long no waiter may be seen while clients wait without a break: some locks show
// only the waiter that is next, once it has polled.
const maxBreak = time.Second

// contended notes whether a lock has waiters.
func (s *lockStats) contended(l *Lock, at time.Time) {
	if at.Sub(s.waiterSeen) > maxBreak {
		s.waited, s.older, s.newer = time.Time{}, freeTime{}, freeTime{}
	}
	if l.WaiterCount() == 0 {
		s.unheld = time.Time{}
		return
	}
	s.waiterSeen = at
	if len(l.Holders) == 0 && s.unheld.IsZero() {
		s.unheld = at
	}
	switch {
	case s.waited.IsZero():
		s.waited, s.older, s.newer = at, freeTime{since: at}, freeTime{since: at}
	case at.Sub(s.newer.since) > freeWindow:
		s.older, s.newer = s.newer, freeTime{since: at}
	}
}

// sorted returns the finished holds, the shortest first.
func (s *lockStats) sorted() []finishedHold {
	return slices.SortedFunc(slices.Values(s.holds), func(a, b finishedHold) int { return int(a.held - b.held) })
}

// past sums up the statistics. sorted are the finished holds.
func (s *lockStats) past(sorted []finishedHold) *Past {
	p := &Past{TTL: s.ttl, ContendedAt: s.waited, WaiterSeen: s.waiterSeen, FreeSince: s.older.since, Free: s.older.free + s.newer.free}
	if n := len(sorted); n > 0 { // of at most maxHolds, p99 is the longest
		p.HoldP99, p.AtLeast = sorted[n-1].held, sorted[n-1].expired
		if n >= minHolds {
			p.HoldP50 = sorted[n/2].held
		}
	}
	if n := len(s.gaps); n >= minHolds {
		p.HandOffP50 = slices.Sorted(slices.Values(s.gaps))[n/2]
	}
	return p
}
