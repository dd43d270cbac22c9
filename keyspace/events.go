package keyspace

import (
	"slices"
	"strings"
	"time"
)

// EventKind is what happened to a lock between two reads.
type EventKind string

// Kinds of events.
const (
	Discovered   EventKind = "appeared"     // found with a holder; the begin of the hold is unknown
	Acquired     EventKind = "acquired"     // a new holder
	Reentered    EventKind = "reentered"    // the depth of a holder rose
	Exited       EventKind = "left"         // the depth of a holder fell; it still holds the lock
	Renewed      EventKind = "renewed"      // the deadline moved later under the same holder
	Released     EventKind = "released"     // a hold ended before its deadline
	HandedOver   EventKind = "handed-over"  // a hold ended, and the first waiter of the queue holds the lock
	Expired      EventKind = "expired"      // a hold ended at its deadline
	Deleted      EventKind = "deleted"      // the lock vanished before its deadline without the message that its library sends on a release
	Stolen       EventKind = "stolen"       // a new holder replaced the old one without a release: the deadline is the same, or the library's release message is missing
	Replaced     EventKind = "replaced"     // another client has the lock, and locktop saw neither a release in between nor a proof that there was none
	Evicted      EventKind = "evicted"      // the server evicted the lock because its memory was full
	Flushed      EventKind = "flushed"      // the database was emptied
	Lost         EventKind = "lost"         // a failover or a restart of the server lost the lock before its deadline, as far as it is known
	Vanished     EventKind = "gone"         // a hold ended, and the reason is unknown: the server could not be read, or was read late, or evicted other keys
	ModeChanged  EventKind = "mode-changed" // a holder changed from write to read or back
	WaiterJoined EventKind = "waiter-joined"
	WaiterLeft   EventKind = "waiter-left"
	TTLLost      EventKind = "ttl-lost" // a lock that would have expired never will
)

// Event is one change of one lock.
type Event struct {
	At     time.Time     `json:"at,omitzero"` // on the server's clock, when the server reported the change, or else when it was read
	Kind   EventKind     `json:"kind,omitzero"`
	Lock   Lock          `json:"lock,omitzero"`    // the lock after the change; as last seen if it is gone
	Holder Holder        `json:"holder,omitzero"`  // the holder that changed; zero if none did
	Waiter Waiter        `json:"waiter,omitzero"`  // the waiter of a waiter event
	Held   time.Duration `json:"held_ns,omitzero"` // duration of the hold that ended; 0 = unknown

	Announced bool        `json:"announced,omitzero"` // of Released: the message of its library proves it; else the lock was only gone before its deadline
	Possible  []EventKind `json:"possible,omitzero"`  // of Vanished, and of a Renewed that may be a new hold: the kinds of what may have happened; nil = nothing is known
}

// Ended returns when the hold of this event ended: at its deadline if it expired, else
// when the end was read.
func (e Event) Ended() time.Time {
	if e.Kind == Expired && e.Holder.Expires.Before(e.At) && !e.Holder.Expires.IsZero() {
		return e.Holder.Expires
	}
	return e.At
}

// Readings returns the kinds of what may have happened; nil: just this one, or nothing is known of it. A
// release without a message looks like a deletion by another client.
func (e Event) Readings() []EventKind {
	if e.Kind == Released && !e.Announced {
		return []EventKind{Released, Deleted}
	}
	return e.Possible
}

// MayHave says what may have happened, besides the kind of the event: "or deleted", "released or evicted"; "" if
// nothing else can be said.
func (e Event) MayHave() (text string) {
	for i, k := range e.Readings() {
		if i > 0 {
			text += " or "
		}
		if k != e.Kind {
			text += string(k)
		}
	}
	return strings.TrimSpace(text)
}

// TakenBy returns the holder that has taken the place of the holder of a Stolen, Replaced
// or Lost event: two clients may work at the same time. It is false if there is none.
func (e Event) TakenBy() (Holder, bool) {
	next := e.Lock.SoleHolder()
	if e.Kind != Stolen && e.Kind != Replaced && e.Kind != Lost || next == "" || next == e.Holder.ID {
		return Holder{}, false
	}
	return e.Lock.Holders[0], true
}

// EventKinds lists all kinds in the order in which help texts explain them.
func EventKinds() []EventKind {
	return []EventKind{
		Discovered, Acquired, Reentered, Exited, Renewed,
		Released, HandedOver, Expired, Deleted, Stolen, Replaced, Evicted, Flushed, Lost, Vanished,
		ModeChanged, WaiterJoined, WaiterLeft, TTLLost,
	}
}

// Ends reports whether an event of this kind ends a hold.
func (k EventKind) Ends() bool {
	switch k {
	case Released, HandedOver, Expired, Deleted, Stolen, Replaced, Evicted, Flushed, Lost, Vanished:
		return true
	default:
		return false
	}
}

// Two reads of the same deadline differ by the time between reading the clock and
// reading the time to live; on servers that report the deadline itself, by rounding.
const (
	DeadlineJitter = 25 * time.Millisecond // difference between two reads of one deadline
	ExpirySlack    = 50 * time.Millisecond // a hold that ends so shortly before its deadline counts as expired
	maxSpread      = 5 * time.Millisecond  // largest uncertainty of two deadlines that can still be compared
)

// Diff returns what happened to the locks between two snapshots, as far as they show
// it. A hold that began and ended in between leaves no trace. A lock that was released
// and acquired again by the same holder looks held. A hold whose deadline passed in
// between counts as expired. A hold that ended before its deadline counts as released.
// It counts as stolen only if another holder has exactly the same deadline and the old
// hold had lasted longer than the resolution of deadlines: an acquisition after a
// release has a later deadline.
//
// Of a Redlock, a token holds the lock from its majority of all servers on, as far as they
// answer: what one that is silent had, or has lost, counts.
//
// The events are in the order of the locks of now; the locks that are gone follow.
func Diff(old, now Snapshot) []Event { return DeltaOf(old, now).Diff(old) }

// Differ collects the events that reads of locks show. Its fields say what is known of
// the read besides the locks.
type Differ struct {
	At           time.Time
	Reported     time.Time     // when the server reported the change, no earlier than it happened; zero = it did not
	Watched      bool          // a lock that was not there before was acquired since
	MissedEvents bool          // the server could not be read for a while: time and reason of an end are unknown
	Reason       EventKind     // the known reason why holds ended; empty = unknown
	Possible     []EventKind   // with the reason Vanished: the kinds of what may have happened
	Late         time.Duration // a new lock was found by a scan: it may be so much older than this read
	Repeated     bool          // the lock has changed more than once since the last read
	Slack        time.Duration // a hold that ends by so much before its deadline counts as expired
	Lag          time.Duration // by which a change is reported or read late, at most; 0 = unknown
	Jitter       time.Duration // difference between two reads of one deadline
	Spread       time.Duration // sum of the uncertainties of the two deadlines of this lock
	Held         time.Duration // how long, at least, the holder had held this lock under its deadline
	Events       []Event
}

func (d *Differ) add(kind EventKind, l Lock, h Holder) {
	d.Events = append(d.Events, Event{At: d.changed(), Kind: kind, Lock: l, Holder: h})
}

// Added reports a lock that is new.
func (d *Differ) Added(l Lock) {
	kind := Discovered
	if d.Watched {
		kind = Acquired
	}
	for _, h := range l.Holders {
		d.add(kind, l, h)
	}
	for _, w := range l.Waiters {
		d.addWaiter(WaiterJoined, l, w)
	}
}

// Removed reports a lock that is gone.
func (d *Differ) Removed(l Lock) {
	for _, h := range l.Holders {
		d.end(l, h, d.endKind(h))
	}
	for _, w := range l.Waiters {
		d.addWaiter(WaiterLeft, l, w)
	}
}

// Changed compares two reads of a lock.
func (d *Differ) Changed(was, l Lock) {
	stolen := !d.Repeated && d.sameDeadline(was, l)
	next, passed := successor(was, l)
	for _, h := range was.Holders {
		if _, stays := l.Holder(h.ID); stays {
			continue
		}
		kind := d.endKind(h)
		switch {
		case kind == Vanished, kind == Lost, d.Reason == Released:
		case stolen:
			kind = Stolen
		case passed && (kind == Released || kind == Replaced):
			kind = HandedOver
		}
		d.end(l, h, kind)
	}
	for _, h := range l.Holders {
		before, stayed := was.Holder(h.ID)
		switch {
		case stayed:
			d.kept(was, l, before, h)
		case d.MissedEvents && h.ID != next:
			d.add(Discovered, l, h)
		default:
			d.add(Acquired, l, h)
		}
	}
	d.deadline(was, l)
	d.queue(was, l)
}

// sameDeadline reports whether an exclusive hold passed to another holder under the
// same deadline, which a release does not allow: it removes the deadline. A lock that
// is released and acquired again with the same TTL has a deadline that is later by at
// least the duration of the first hold. That duration must exceed the resolution of
// deadlines.
func (d *Differ) sameDeadline(was, l Lock) bool {
	before, now := was.SoleHolder(), l.SoleHolder()
	if before == "" || now == "" || before == now {
		return false
	}
	if was.Holders[0].Mode == Read || was.Expires.IsZero() || l.Expires.IsZero() || d.Spread > maxSpread {
		return false
	}
	return l.Expires.Sub(was.Expires).Abs() <= d.Spread && d.Held > 2*d.Spread+resolution(was.Expires)
}

// resolution returns the granularity of a deadline: a millisecond, or a coarser unit if
// the deadline is a multiple of it. Some libraries count in seconds, and some locks all
// end at midnight.
func resolution(deadline time.Time) time.Duration {
	for _, unit := range [...]time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if deadline.Truncate(unit).Equal(deadline) {
			return unit
		}
	}
	return time.Millisecond
}

// successor returns the first waiter of the queue, and whether it holds the lock now.
func successor(was, l Lock) (string, bool) {
	if len(was.Holders) != 1 || len(was.Waiters) == 0 || len(l.Holders) != 1 {
		return "", false
	}
	first := was.Waiters[0].ID
	return first, first == l.Holders[0].ID && first != was.Holders[0].ID
}

// endKind returns why a hold ended.
func (d *Differ) endKind(h Holder) EventKind {
	switch d.Reason {
	case Flushed, Evicted, Released, Stolen, Replaced, Vanished:
		return d.Reason
	}
	switch {
	case !h.Expires.IsZero() && !d.changed().Before(h.Expires.Add(-d.Slack)):
		return Expired
	case d.Reason == Lost:
		return Lost
	case d.MissedEvents:
		return Vanished
	case d.Reason == Deleted:
		return Deleted
	default:
		return Released
	}
}

// changed returns when the change happened, as far as that is known.
func (d *Differ) changed() time.Time {
	if d.Reported.IsZero() {
		return d.At
	}
	return Earliest(d.Reported, d.At)
}

// end reports the end of a hold.
func (d *Differ) end(l Lock, h Holder, kind EventKind) {
	d.add(kind, l, h)
	e := &d.Events[len(d.Events)-1]
	if e.Announced = kind == Released && d.Reason == Released; kind == Vanished {
		e.Possible = d.Possible
	} else if kind == Expired && d.MissedEvents { // nobody looked when the deadline passed
		e.Possible = []EventKind{Expired, Released}
	}
	if end := e.Ended(); !h.Since.IsZero() && h.Since.Before(end) {
		e.Held = end.Sub(h.Since)
	}
}

// kept reports what changed in a hold that continues.
func (d *Differ) kept(was, l Lock, before, h Holder) {
	switch {
	case h.Depth > before.Depth:
		d.add(Reentered, l, h)
	case h.Depth < before.Depth:
		d.add(Exited, l, h)
	}
	if h.Mode != before.Mode {
		d.add(ModeChanged, l, h)
	}
	own := h.Expires != l.Expires || len(l.Holders) == 1
	if own && movedLater(before.Expires, h.Expires, d.Jitter) {
		d.add(Renewed, l, h)
		if d.lapsed(was, before, h) {
			d.Events[len(d.Events)-1].Possible = []EventKind{Renewed, Acquired}
		}
	}
}

// deadline reports a change of the deadline that several holders share.
func (d *Differ) deadline(was, l Lock) {
	if !sharesHolder(was, l) {
		return
	}
	if !was.Expires.IsZero() && l.Expires.IsZero() {
		d.add(TTLLost, l, Holder{})
	}
	shared := len(l.Holders) > 1 && !slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Expires != l.Expires })
	if shared && movedLater(was.Expires, l.Expires, d.Jitter) {
		d.add(Renewed, l, Holder{})
	}
}

// queue reports waiters that joined or left. A waiter that got the lock has not left.
func (d *Differ) queue(was, l Lock) {
	for _, w := range l.Waiters {
		if !isWaiting(was, w.ID) {
			d.addWaiter(WaiterJoined, l, w)
		}
	}
	for _, w := range was.Waiters {
		if _, holds := l.Holder(w.ID); !holds && !isWaiting(l, w.ID) {
			d.addWaiter(WaiterLeft, l, w)
		}
	}
}

func (d *Differ) addWaiter(kind EventKind, l Lock, w Waiter) {
	d.Events = append(d.Events, Event{At: d.changed(), Kind: kind, Lock: l, Waiter: w})
}

func isWaiting(l Lock, id string) bool {
	return slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return w.ID == id })
}

// sharesHolder reports whether a holder of was still holds the lock.
func sharesHolder(was, l Lock) bool {
	return slices.ContainsFunc(l.Holders, func(h Holder) bool {
		_, held := was.Holder(h.ID)
		return held
	})
}

// movedLater reports whether a deadline moved later by more than two reads differ.
func movedLater(was, now time.Time, jitter time.Duration) bool {
	return !was.IsZero() && !now.IsZero() && now.Sub(was) > jitter
}
