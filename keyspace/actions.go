package keyspace

import "time"

// Actions are the scripts that change a lock of a format from outside. A script reads
// the lock again, and changes it only if every holder in its arguments is still there
// with the same mode and count. Later holders are not changed.
//
// Each script returns 1 if it has changed the lock and 0 if it has not. ARGV begins
// with the result of Args; KEYS is the result of Keys.
type Actions struct {
	Keys func(Lock) []string // the lock's own key first, then the other keys that the script touches
	Args func(Lock) []string
	// ForceRelease is Lua that ends the holds in its arguments as the library would: it
	// deletes the same keys and wakes waiters in the same way.
	ForceRelease string
	// Extend is Lua that sets a new deadline of the holds in its arguments. The last of
	// ARGV is the time to live in ms. Empty: the format does not store a deadline that
	// others may change.
	Extend string
	// WakeHint says how waiters are woken, for people: "hear 0 on channel". Empty: waiters
	// poll.
	WakeHint string
}

// ReleaseChannel is where a library tells waiters that a lock is free. A lock that
// vanishes without such a message was not released.
type ReleaseChannel struct {
	Pattern string // of the channels, for PSUBSCRIBE
	// Key returns the key of the lock that a message is about; false if it is not about a
	// lock.
	Key func(channel, payload string) (string, bool)
	// ToWaiter reports whether messages on a channel go to one waiter only. Such a library
	// sends no message while there are no waiters. Nil: all messages go to all subscribers.
	ToWaiter func(channel string) bool
}

// Action is a change of a lock from outside.
type Action string

// Actions, from the most to the least dangerous.
const (
	ForceRelease Action = "break"  // end the holds that were seen
	Extend       Action = "extend" // set a new deadline
	Expire       Action = "expire" // set a deadline on a lock that has none
)

// Outcome is the result of an action.
type Outcome string

// The outcomes. Intended is logged before anything is sent.
const (
	Intended Outcome = "intended"
	Done     Outcome = "done"
	Changed  Outcome = "changed" // the lock had changed; nothing was done
	Failed   Outcome = "failed"  // see Err; the server may still have run the script
)

// AuditRecord is one record of an action: its intent or its outcome. It contains
// digests of the tokens, because a token is enough to release the lock.
type AuditRecord struct {
	ID      string    // the same for intent and outcome
	At      time.Time // on the local clock
	Action  Action
	Lock    ID
	Format  string
	Holders []string // digests of the IDs of the holders that were seen
	TTL     time.Duration
	Outcome Outcome
	Nodes   int    // servers on which the action succeeded
	Now     string // if the lock had changed: its holders, for people
	Err     string
}

// AuditLog stores audit records. Write returns after the record is durable, or an
// error. After an error the action is not run.
type AuditLog interface {
	Write(AuditRecord) error
}
