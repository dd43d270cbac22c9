package keyspace

import "time"

// EventKind is what happened to a lock between two reads.
type EventKind string

// Kinds of events.
const (
	Discovered   EventKind = "appeared"     // found with a holder; the begin of the hold is unknown
	Acquired     EventKind = "acquired"     // a new holder
	Reentered    EventKind = "reentered"    // the count of a holder rose
	Exited       EventKind = "left"         // the count of a holder fell; it still holds the lock
	Renewed      EventKind = "renewed"      // the deadline moved later under the same holder
	Released     EventKind = "released"     // a hold ended before its deadline
	HandedOver   EventKind = "handed-over"  // a hold ended, and the first waiter of the queue holds the lock
	Expired      EventKind = "expired"      // a hold ended at its deadline
	Deleted      EventKind = "deleted"      // the lock vanished before its deadline without the message that its library sends on a release
	Stolen       EventKind = "stolen"       // a new holder replaced the old one without a release: the deadline is the same, or the library's release message is missing
	Evicted      EventKind = "evicted"      // the server evicted the lock because its memory was full
	Flushed      EventKind = "flushed"      // the database was emptied
	Vanished     EventKind = "gone"         // a hold ended while the server could not be read; time and reason are unknown
	ModeChanged  EventKind = "mode-changed" // a holder changed from write to read or back
	WaiterJoined EventKind = "waiter-joined"
	WaiterLeft   EventKind = "waiter-left"
	TTLLost      EventKind = "ttl-lost" // a lock that would have expired never will
)

// Event is one change of one lock.
type Event struct {
	At     time.Time     `json:"at,omitzero"` // on the server's clock, when the change was read
	Kind   EventKind     `json:"kind,omitzero"`
	Lock   Lock          `json:"lock,omitzero"`    // the lock after the change; as last seen if it is gone
	Holder Holder        `json:"holder,omitzero"`  // the holder that changed; zero if none did
	Waiter Waiter        `json:"waiter,omitzero"`  // the waiter of a waiter event
	Held   time.Duration `json:"held_ns,omitzero"` // duration of the hold that ended; 0 = unknown
}

// Ended returns when the hold of this event ended: at its deadline if it expired, else
// when the end was read.
func (e Event) Ended() time.Time {
	if e.Kind == Expired && e.Holder.Expires.Before(e.At) && !e.Holder.Expires.IsZero() {
		return e.Holder.Expires
	}
	return e.At
}

// EventKinds lists all kinds in the order in which help texts explain them.
func EventKinds() []EventKind {
	return []EventKind{
		Discovered, Acquired, Reentered, Exited, Renewed,
		Released, HandedOver, Expired, Deleted, Stolen, Evicted, Flushed, Vanished,
		ModeChanged, WaiterJoined, WaiterLeft, TTLLost,
	}
}

// Ends reports whether an event of this kind ends a hold.
func (k EventKind) Ends() bool {
	switch k {
	case Released, HandedOver, Expired, Deleted, Stolen, Evicted, Flushed, Vanished:
		return true
	default:
		return false
	}
}
