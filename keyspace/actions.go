package keyspace

import "time"

// Actions is how somebody else's lock of a format is acted on. Its scripts look
// again, and act only if every holder they are told of is still there as it was
// seen, with its mode and its count; others, who came since, are left alone.
//
// Each script returns 1 if it has acted, and 0 if it has changed nothing. ARGV
// begins with what Args returns; KEYS is what Keys returns.
type Actions struct {
	Keys func(Lock) []string // the lock's own first, then what is touched beside it
	Args func(Lock) []string
	// ForceRelease is Lua that ends the holds that were seen the way the library would
	// have: with what it deletes beside them, and with what its waiters listen
	// for.
	ForceRelease string
	// Extend is Lua that gives the holds that were seen a new deadline. The last
	// of ARGV is the time to live from now, in ms. Empty: the deadline is not
	// kept in a way that somebody else may change.
	Extend string
	// WakeHint says what those who wait do to learn of it, for people: "hear 0 on
	// channel". Empty: they ask by themselves, again and again.
	WakeHint string
}

// ReleaseChannel is how a library tells its waiters that a lock is free, for
// those who look on: a lock that goes without it was not released.
type ReleaseChannel struct {
	Pattern string // of the channels, as PSUBSCRIBE takes it
	// Key returns the key of the lock that a message is about; false if it is
	// about none.
	Key func(channel, payload string) (string, bool)
	// ToWaiter reports whether a message on a channel goes to one waiter alone. A lock
	// that is announced so is released in silence while nobody waits. Nil: all
	// messages go to all.
	ToWaiter func(channel string) bool
}

// Action is what can be done to a lock.
type Action string

// From the worst to the mildest.
const (
	ForceRelease Action = "break"  // end the holds that were seen
	Extend       Action = "extend" // give them a new deadline
	Expire       Action = "expire" // give a lock that would never expire a deadline
)

// Outcome is what has become of an act.
type Outcome string

// The outcomes. Intended is written down before anything is sent.
const (
	Intended Outcome = "intended"
	Done     Outcome = "done"
	Changed  Outcome = "changed" // the lock was not as it had been seen; nothing was done
	Failed   Outcome = "failed"  // see Err; what was sent may have been done all the same
)

// AuditRecord is one line about an act: what is going to be done, or what came of it.
// It holds no tokens, which would be keys to the locks, only digests of them.
type AuditRecord struct {
	ID      string    // the same for the intent and the outcome
	At      time.Time // our clock
	Action  Action
	Lock    ID
	Format  string
	Holders []string // digests of the IDs of those who were seen to hold it
	TTL     time.Duration
	Outcome Outcome
	Nodes   int    // servers on which it was done
	Now     string // if it was changed: who holds it now, for people
	Err     string
}

// AuditLog writes down what is done. It returns when that cannot be lost any
// more, or an error; then nothing is done.
type AuditLog interface {
	Write(AuditRecord) error
}
