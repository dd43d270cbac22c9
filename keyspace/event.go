package keyspace

import "time"

// EventKind says what happened to a lock between two looks at it.
type EventKind string

// What can happen to a lock.
const (
	Discovered   EventKind = "appeared"     // found held; when the hold began is not known
	Acquired     EventKind = "acquired"     // a holder came
	Reentered    EventKind = "reentered"    // a holder's count rose
	Exited       EventKind = "left"         // a holder's count fell, it still holds
	Renewed      EventKind = "renewed"      // the expiry moved later under the same holder
	Released     EventKind = "released"     // a holder went before its deadline
	HandedOver   EventKind = "handed-over"  // a holder went, and the one who was next in the queue holds the lock
	Expired      EventKind = "expired"      // a holder went at its deadline
	Deleted      EventKind = "deleted"      // the lock went before its deadline, and its library would have told the waiters
	Stolen       EventKind = "stolen"       // another holder stands there and nobody had let go: it has the same deadline, or its library would have told of the release
	Evicted      EventKind = "evicted"      // the server was short of memory and threw the lock away
	Flushed      EventKind = "flushed"      // the whole database was emptied
	Vanished     EventKind = "gone"         // a holder went while nobody could look: why, and when, is not known
	ModeChanged  EventKind = "mode-changed" // a holder went from write to read or back
	WaiterJoined EventKind = "waiter-joined"
	WaiterLeft   EventKind = "waiter-left"
	TTLLost      EventKind = "ttl-lost" // it would have expired, and now it never will
)

// Event is one thing that happened to one lock.
type Event struct {
	At     time.Time // server's clock, at the look that showed it
	Kind   EventKind
	Lock   Lock          // as it is now; as it was last seen if it is gone
	Holder Holder        // whom it concerns; zero if nobody
	Waiter Waiter        // for waiter events
	Held   time.Duration // how long a hold that ended had lasted; 0 = its begin is not known
}

// Ended returns when a hold ended that an event of its end tells of: its
// deadline if it expired, else the look that showed it.
func (e Event) Ended() time.Time {
	if e.Kind == Expired && e.Holder.Expires.Before(e.At) && !e.Holder.Expires.IsZero() {
		return e.Holder.Expires
	}
	return e.At
}

// EventKinds lists all kinds, in the order in which they are explained.
func EventKinds() []EventKind {
	return []EventKind{
		Discovered, Acquired, Reentered, Exited, Renewed,
		Released, HandedOver, Expired, Deleted, Stolen, Evicted, Flushed, Vanished,
		ModeChanged, WaiterJoined, WaiterLeft, TTLLost,
	}
}

// Ends reports whether an event of this kind is the end of a hold.
func (k EventKind) Ends() bool {
	switch k {
	case Released, HandedOver, Expired, Deleted, Stolen, Evicted, Flushed, Vanished:
		return true
	default:
		return false
	}
}
