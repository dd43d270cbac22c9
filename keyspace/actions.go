package keyspace

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

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

// Reasons why nothing was done.
var (
	ErrChanged      = errors.New("the lock is not as it was seen")
	ErrNotSupported = errors.New("locks of this format cannot be changed from outside")
)

// ChangedError is an ErrChanged with the current state of the lock. On servers where
// the lock had changed, nothing was done. Of a Redlock, some servers may have had the
// lock unchanged, but no majority.
type ChangedError struct {
	Key  string
	Now  *Lock // nil = the lock is gone
	Done int   // servers of a Redlock on which the action was done,
	Of   int   // of those on which the lock was seen
}

// Error names the current holders.
func (e *ChangedError) Error() string {
	if e.Done > 0 {
		return fmt.Sprintf("done on %d of %d servers only: elsewhere %q is %s", e.Done, e.Of, e.Key, e.Holders())
	}
	return fmt.Sprintf("nothing was done: %q is %s", e.Key, e.Holders())
}

// Is reports whether target is ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// Holders describes the current holders.
func (e *ChangedError) Holders() string {
	if e.Now == nil || len(e.Now.Holders) == 0 {
		return "not held any more"
	}
	var names []string
	for _, h := range e.Now.Holders {
		name := h.Name()
		if h.Mode != "" {
			name += " (" + string(h.Mode) + ")"
		}
		if h.Count > 1 {
			name += fmt.Sprintf(" %d times", h.Count)
		}
		names = append(names, name)
	}
	return "now held by " + strings.Join(names, " and ")
}
