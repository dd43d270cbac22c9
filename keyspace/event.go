package keyspace

import "time"

// EventKind says what happened to a lock between two looks at it.
type EventKind string

// What can happen to a lock.
const (
	Appeared    EventKind = "appeared"     // found held; when the hold began is not known
	Acquired    EventKind = "acquired"     // a holder came
	Reentered   EventKind = "reentered"    // a holder's count rose
	Left        EventKind = "left"         // a holder's count fell, it still holds
	Renewed     EventKind = "renewed"      // the expiry moved later under the same holder
	Released    EventKind = "released"     // a holder went before its deadline
	Expired     EventKind = "expired"      // a holder went at its deadline
	Stolen      EventKind = "stolen"       // another holder stands there under the same deadline: nobody had let go
	ModeChanged EventKind = "mode-changed" // a holder went from write to read or back
	WaiterCame  EventKind = "waiter-joined"
	WaiterWent  EventKind = "waiter-left"
	TTLLost     EventKind = "ttl-lost" // it would have expired, and now it never will
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
