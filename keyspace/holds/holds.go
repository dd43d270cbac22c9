// Package holds is the ledger of holds and waits: who held a lock, from when to when, how deep, how
// the hold ended, who waited, and how well each of this is known. A view of the past of a lock
// asks the ledger and concludes nothing by itself:
//
//   - the timeline draws a hold from the earliest begin to the last moment at which it is proven
//   - the accounts of contention count a hold from the read that shows it
//   - an incident asks for the end and its proof, for the renewals, and for who came next
//
// The package is pure: it has no clock and no Redis. Its input are the events and the states of a
// watch or of a recording. A value that nothing proves is unknown, and never zero, false or free.
package holds

import (
	"cmp"
	"time"

	"locktop/keyspace"
)

// Grade says how well a moment is known.
type Grade uint8

// Grades of a moment.
const (
	Unknown   Grade = iota // nothing is known of it
	Exact                  // it was At, as far as the resolution of a read goes
	NotAfter               // it was At or earlier: a hold that was found lasts at least since then
	NotBefore              // it was At or later: a hold that nobody saw end lasted at least until then
	Between                // it was between At and Upto, both included
)

// Moment is a moment on the clock of the lock's server, and how well it is known.
type Moment struct {
	At    time.Time
	Upto  time.Time // of the grade Between
	Grade Grade
}

// Known reports whether there is a bound of the moment.
func (m Moment) Known() bool { return m.Grade != Unknown }

// Earliest returns the earliest time at which the moment may have been; false if there is none.
func (m Moment) Earliest() (time.Time, bool) {
	return m.At, m.Known() && m.Grade != NotAfter
}

// Latest returns the latest time at which the moment may have been; false if there is none.
func (m Moment) Latest() (time.Time, bool) {
	if m.Grade == Between {
		return m.Upto, true
	}
	return m.At, m.Known() && m.Grade != NotBefore
}

// between returns the moment that was in a span. It is exact within the resolution of deadlines.
func between(from, upto time.Time) Moment {
	if upto.Sub(from) <= time.Millisecond {
		return Moment{At: from, Grade: Exact}
	}
	return Moment{from, upto, Between}
}

// Step is a change of the reentry depth of a hold.
type Step struct {
	At    time.Time
	Depth int
}

// Move is a deadline that was set earlier, was removed, or was given to a hold without one.
type Move struct{ At, From, To time.Time } // From and To: zero = no deadline

// Proof says what shows the end of a hold.
type Proof uint8

// Proofs of an end.
const (
	NoProof     Proof = iota // the hold is gone; the reason is not known
	ByReport                 // the server reported this end of this lock; one that is released was only gone before its deadline
	ByDeadline               // the deadline had passed when the end was read
	BySuccessor              // another holder has its place
	ByLoss                   // all locks of the server or the database were lost at once
	ByMessage                // the library announced this release of this lock
)

// End is how a hold ended. The kind is zero while it lasts.
type End struct {
	Kind  keyspace.EventKind
	Proof Proof
}

// Hold is one token's possession of a lock. A hold of a ledger never changes: the ledger replaces it.
type Hold struct {
	Holder keyspace.Holder // as last read: its token, label, mode, depth and deadline
	Shared bool            // other holds of the lock may last at the same time
	Found  bool            // nobody saw it begin: it was there when its lock was read
	From   Moment          // the time in a token is that of the attempt, by the clock of the client: the earliest one
	To     Moment          // unknown while the hold lasts
	Seen   time.Time       // of the last read that shows it
	End    End

	TTL      time.Duration // time to live that its client has set, as read; 0 = unknown, or it never expires
	Renewals int           // that were seen
	Renewed  []time.Time   // of the latest renewals, at most maxRenewed
	Depth    []Step        // the latest changes, at most maxSteps; none: it was always that of Holder
	First    time.Duration // TTL at its begin, as read; 0 = unknown, or it had none
	Moved    *Move         // the last change of the deadline that is no renewal; nil = none was seen

	serial uint64 // rises with each hold of the ledger
}

// Lasts reports whether the hold had not ended when the ledger was asked.
func (h *Hold) Lasts() bool { return h.End.Kind == "" }

// Until returns the earliest time at which the hold may have ended, or now while it lasts.
func (h *Hold) Until(now time.Time) time.Time {
	if h.Lasts() {
		return now
	}
	return h.To.At
}

// LastRenewal returns when the hold was renewed last; zero = it was not, as far as is known.
func (h *Hold) LastRenewal() time.Time {
	if n := len(h.Renewed); n > 0 {
		return h.Renewed[n-1]
	}
	return time.Time{}
}

// Held returns how long the hold lasted up to now, at least and at most. most is negative if nothing
// limits it, because the begin or the end is not known.
func (h *Hold) Held(now time.Time) (least, most time.Duration) {
	end := Moment{At: now, Grade: Exact}
	if !h.Lasts() {
		end = h.To
	}
	if first, known := end.Earliest(); known {
		if began, known := h.From.Latest(); known {
			least = max(0, first.Sub(began))
		}
	}
	if last, known := end.Latest(); known {
		if earliest, known := h.From.Earliest(); known {
			return least, last.Sub(earliest)
		}
	}
	return least, -1
}

// update takes what a read says of a hold that lasts.
func (h *Hold) update(l *keyspace.Lock, now keyspace.Holder, at time.Time) {
	if now.Depth != h.Holder.Depth {
		h.Depth = newest(append(h.Depth, Step{at, now.Depth}), maxSteps)
	}
	now.Addr = cmp.Or(now.Addr, h.Holder.Addr)
	h.move(now.Expires, at)
	moved := !h.Holder.Expires.IsZero() && now.Expires.Sub(h.Holder.Expires) > keyspace.DeadlineJitter
	h.Holder, h.Shared, h.Seen = now, shared(l, now), at
	switch {
	case h.Shared: // the lock counts the renewals of all holders
		if moved && !now.Renewed.After(h.LastRenewal()) {
			now.Renewed = at
		}
		h.renew(now.Renewed)
	case l.Renewals > h.Renewals: // they had no event
		h.renew(l.Renewed)
		h.Renewals = l.Renewals
		fallthrough
	default:
		h.TTL = cmp.Or(l.TTLSet, h.TTL)
	}
}

// move takes the deadline of a read. A hold with a TTL has a deadline, also if that of its holder was not read.
func (h *Hold) move(to, at time.Time) {
	from := h.Holder.Expires
	if unread := from.IsZero() && h.TTL > 0 && h.Moved == nil; unread {
		return
	}
	if later := !from.IsZero() && to.After(from); !later && from.Sub(to).Abs() > keyspace.DeadlineJitter {
		h.Moved = &Move{at, from, to}
	}
}

// renew takes a renewal, unless it is known already.
func (h *Hold) renew(at time.Time) {
	if !at.After(h.LastRenewal()) {
		return
	}
	h.Renewals++
	h.Renewed = newest(append(h.Renewed, at), maxRenewed)
	h.TTL = keyspace.TTLAt(h.Holder.Expires, at)
}

// Source says how the number of waiting clients is known. No source shows more waiters than there
// are, so of several figures the largest is the best.
type Source string

// Sources, from the weakest.
const (
	Asked  Source = "asked"  // another client has asked for the held lock: at least one waits
	Seen   Source = "seen"   // MONITOR has shown the attempts of the waiters
	Stored Source = "stored" // the library stores its waiters, or the server lists them
	Own    Source = "exact"  // the waiting clients are those of the load of this process
)

// Wait is the wait of one client, or of several of which only the number is known.
type Wait struct {
	Waiter  string // "" = only the number is known
	Clients int    // that wait, at least
	Source  Source
	From    Moment
	To      Moment    // unknown while they wait
	Seen    time.Time // of the first read that shows it
	Proven  time.Time // the last moment at which the wait is proven
}

// Lasts reports whether the wait had not ended when the ledger was asked.
func (w *Wait) Lasts() bool { return !w.To.Known() }

// Until returns the end of the wait. A wait that lasts is proven up to now if its clients are
// stored, else up to the last request.
func (w *Wait) Until(now time.Time) time.Time {
	switch {
	case !w.Lasts():
		return w.To.At
	case w.Source == Asked:
		return w.Proven
	}
	return now
}

// In returns the part of the wait that is in a span, and whether there is one. A part that begins or ends
// with the span may have lasted for longer.
func (w Wait) In(from, until time.Time) (part Wait, ok bool) {
	begin, end := w.From.At, w.Until(until)
	w.From, w.To = Moment{At: begin, Grade: Exact}, Moment{At: end, Grade: Exact}
	if !begin.After(from) {
		w.From = Moment{At: from, Grade: NotAfter}
	}
	if !end.Before(until) {
		w.To = Moment{At: until, Grade: NotBefore}
	}
	return w, w.To.At.After(w.From.At)
}

// Length returns how long the wait lasted from its first to its last known moment, and whether that is only a
// lower bound.
func (w *Wait) Length() (length time.Duration, atLeast bool) {
	return w.To.At.Sub(w.From.At), w.From.Grade == NotAfter || w.To.Grade == NotBefore
}
