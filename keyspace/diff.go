package keyspace

import (
	"slices"
	"time"
)

// Two looks at the same deadline differ by what passes between reading the
// clock and reading the time to live; where the server tells the deadline itself,
// by how it rounds.
const (
	jitter      = 25 * time.Millisecond // between two readings of one deadline
	exactJitter = time.Millisecond
	expirySlack = 50 * time.Millisecond // before a deadline, and a hold still ended by it
	maxSpread   = 5 * time.Millisecond  // of two deadlines that may still be said to be the same
)

// Diff says what happened to the locks between two looks, as far as looks can
// tell: a hold that began and ended in between leaves no trace, a lock that was
// released and taken again by the same holder was just held, and a hold whose
// deadline passed in between counts as expired even if it was released first.
// Why a hold ended before its deadline two looks cannot tell: it counts as
// released. It counts as stolen only if another holder stands there under the very
// same deadline and the hold had lasted for longer than deadlines are told apart by:
// whoever takes a lock that was released gets a later deadline.
//
// The events are in the order of the locks of now, then of those that are gone.
func Diff(old, now Snapshot) []Event {
	d := diff{at: now.At, watched: old.Complete && now.Complete, slack: expirySlack, blur: jitter}
	before := byID(old.Locks)
	for _, l := range now.Locks {
		if was, known := before[l.ID()]; known {
			d.held = heldFor(was, old.At)
			d.changed(was, l)
			delete(before, l.ID())
		} else {
			d.added(l)
		}
	}
	for _, l := range old.Locks {
		if _, gone := before[l.ID()]; gone {
			d.removed(l)
		}
	}
	return d.events
}

// heldFor is how long, until a look, the holder of a lock had held it under its
// deadline; 0 if that is not known.
func heldFor(l Lock, until time.Time) time.Duration {
	if len(l.Holders) != 1 || l.Holders[0].Since.IsZero() {
		return 0
	}
	begin := l.Holders[0].Since
	if l.Renewed.After(begin) {
		begin = l.Renewed
	}
	return until.Sub(begin)
}

func byID(locks []Lock) map[ID]Lock {
	m := make(map[ID]Lock, len(locks))
	for _, l := range locks {
		m[l.ID()] = l
	}
	return m
}

// diff collects the events that one look shows.
type diff struct {
	at           time.Time
	watched      bool      // what was not there before has come since
	missedEvents bool      // nobody has looked for a while: what is gone went at some time, for some reason
	reason       EventKind // what is known of why holds ended; empty = nothing
	moved        bool      // the lock has changed more than once since the last look
	slack        time.Duration
	blur         time.Duration // between two readings of one deadline
	spread       time.Duration // of the deadlines of this lock: they may be later than they were read by up to this, taken together
	held         time.Duration // how long the holder of this lock had held it under its deadline, at the least
	events       []Event
}

func (d *diff) add(kind EventKind, l Lock, h Holder) {
	d.events = append(d.events, Event{At: d.at, Kind: kind, Lock: l, Holder: h})
}

// added reports a lock that was not in the look before.
func (d *diff) added(l Lock) {
	kind := Discovered
	if d.watched {
		kind = Acquired
	}
	for _, h := range l.Holders {
		d.add(kind, l, h)
	}
	for _, w := range l.Waiters {
		d.addWaiter(WaiterJoined, l, w)
	}
}

// removed reports a lock that is gone.
func (d *diff) removed(l Lock) {
	for _, h := range l.Holders {
		d.end(l, h, d.endKind(h))
	}
	for _, w := range l.Waiters {
		d.addWaiter(WaiterLeft, l, w)
	}
}

// changed compares two looks at the same lock.
func (d *diff) changed(was, l Lock) {
	stolen := !d.moved && d.sameDeadline(was, l)
	next, passed := successor(was, l)
	for _, h := range was.Holders {
		if _, stays := l.holder(h.ID); stays {
			continue
		}
		kind := d.endKind(h)
		switch {
		case kind == Vanished, d.reason == Released:
		case stolen:
			kind = Stolen
		case passed && kind == Released:
			kind = HandedOver
		}
		d.end(l, h, kind)
	}
	for _, h := range l.Holders {
		before, stayed := was.holder(h.ID)
		switch {
		case stayed:
			d.kept(l, before, h)
		case d.missedEvents && h.ID != next:
			d.add(Discovered, l, h)
		default:
			d.add(Acquired, l, h)
		}
	}
	d.deadline(was, l)
	d.queue(was, l)
}

// sameDeadline reports whether an exclusive hold passed to another holder under
// the same deadline. Whoever releases a lock takes its deadline along, so
// nobody did. A lock that was released and taken again for the same time has a
// deadline that is later by as long as the first had held it, at the least: that
// has to be longer than deadlines are told apart by.
func (d *diff) sameDeadline(was, l Lock) bool {
	before, now := soleHolder(was), soleHolder(l)
	if before == "" || now == "" || before == now {
		return false
	}
	if was.Holders[0].Mode == Read || was.Expires.IsZero() || l.Expires.IsZero() || d.spread > maxSpread {
		return false
	}
	return l.Expires.Sub(was.Expires).Abs() <= d.spread && d.held > 2*d.spread+resolution(was.Expires)
}

// soleHolder returns the ID of the one holder of a lock; empty if there are none, or
// several.
func soleHolder(l Lock) string {
	if len(l.Holders) != 1 {
		return ""
	}
	return l.Holders[0].ID
}

// resolution is how finely a deadline is told: in milliseconds, or by the look of it
// in something coarser. Some libraries count in seconds, and some locks are all held
// until midnight.
func resolution(deadline time.Time) time.Duration {
	for _, unit := range [...]time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if deadline.Truncate(unit).Equal(deadline) {
			return unit
		}
	}
	return time.Millisecond
}

// successor returns the holder to whom the first of the queue has become.
func successor(was, l Lock) (string, bool) {
	if len(was.Holders) != 1 || len(was.Waiters) == 0 || len(l.Holders) != 1 {
		return "", false
	}
	first := was.Waiters[0].ID
	return first, first == l.Holders[0].ID && first != was.Holders[0].ID
}

// endKind says how a hold ended that is gone.
func (d *diff) endKind(h Holder) EventKind {
	switch d.reason {
	case Flushed, Evicted, Released, Stolen:
		return d.reason
	}
	switch {
	case !h.Expires.IsZero() && !d.at.Before(h.Expires.Add(-d.slack)):
		return Expired
	case d.missedEvents:
		return Vanished
	case d.reason == Deleted:
		return Deleted
	default:
		return Released
	}
}

// end reports the end of a hold.
func (d *diff) end(l Lock, h Holder, kind EventKind) {
	end := d.at
	if kind == Expired && h.Expires.Before(end) {
		end = h.Expires
	}
	d.add(kind, l, h)
	if !h.Since.IsZero() && h.Since.Before(end) {
		d.events[len(d.events)-1].Held = end.Sub(h.Since)
	}
}

// kept reports what changed of a hold that goes on.
func (d *diff) kept(l Lock, was, h Holder) {
	switch {
	case h.Count > was.Count:
		d.add(Reentered, l, h)
	case h.Count < was.Count:
		d.add(Exited, l, h)
	}
	if h.Mode != was.Mode {
		d.add(ModeChanged, l, h)
	}
	own := h.Expires != l.Expires || len(l.Holders) == 1
	if own && movedLater(was.Expires, h.Expires, d.blur) {
		d.add(Renewed, l, h)
	}
}

// deadline reports what became of the deadline that several holders share.
func (d *diff) deadline(was, l Lock) {
	if !sharesHolder(was, l) {
		return
	}
	if !was.Expires.IsZero() && l.Expires.IsZero() {
		d.add(TTLLost, l, Holder{})
	}
	shared := len(l.Holders) > 1 && !slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Expires != l.Expires })
	if shared && movedLater(was.Expires, l.Expires, d.blur) {
		d.add(Renewed, l, Holder{})
	}
}

// queue reports who began to wait and who gave up. To get the lock is not to
// give up.
func (d *diff) queue(was, l Lock) {
	for _, w := range l.Waiters {
		if !isWaiting(was, w.ID) {
			d.addWaiter(WaiterJoined, l, w)
		}
	}
	for _, w := range was.Waiters {
		if _, holds := l.holder(w.ID); !holds && !isWaiting(l, w.ID) {
			d.addWaiter(WaiterLeft, l, w)
		}
	}
}

func (d *diff) addWaiter(kind EventKind, l Lock, w Waiter) {
	d.events = append(d.events, Event{At: d.at, Kind: kind, Lock: l, Waiter: w})
}

func isWaiting(l Lock, id string) bool {
	return slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return w.ID == id })
}

// holder finds a holder by its ID.
func (l Lock) holder(id string) (Holder, bool) {
	i := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.ID == id })
	if i < 0 {
		return Holder{}, false
	}
	return l.Holders[i], true
}

// sharesHolder reports whether somebody held the lock at both looks.
func sharesHolder(was, l Lock) bool {
	return slices.ContainsFunc(l.Holders, func(h Holder) bool {
		_, held := was.holder(h.ID)
		return held
	})
}

// movedLater reports whether a deadline was moved later, by more than readings differ.
func movedLater(was, is time.Time, blur time.Duration) bool {
	return !was.IsZero() && !is.IsZero() && is.Sub(was) > blur
}
