package lock

import "time"

// EventKind says what happened to a lock of ours.
type EventKind uint8

// What [Config.Observe] hears of.
const (
	Contended  EventKind = iota // somebody else holds it; the caller begins to wait, or gives up
	Acquired                    // ours now; Waited and Attempts tell what it took
	Renewed                     // the lease was prolonged by the renewal
	Released                    // given back in time; Held tells how long it was ours
	Lost                        // taken away: the server no longer knows our token
	Expired                     // the lease's time ran out before anybody released or renewed it
	HandedOver                  // with a release: the lock went to the waiter with this Token, who has yet to claim it
)

// String returns the word for logs.
func (k EventKind) String() string {
	return [...]string{"contended", "acquired", "renewed", "released", "lost", "expired", "handed over"}[k]
}

// Event is one moment in the life of a lock of ours.
type Event struct {
	Kind     EventKind
	At       time.Time
	Key      string
	Owner    string
	Token    string        // of this attempt; Contended has none, HandedOver has the next one's
	Attempts int           // Acquired: commands that it took
	Waited   time.Duration // Acquired: since Lock or TryLock was called
	Held     time.Duration // Released, Lost, Expired: since the lease began
	Late     time.Duration // Renewed: sent this long after it was due
}
