package lock

import "time"

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events that [Config.Observe] receives.
const (
	Contended  EventKind = iota // another client holds the lock; the caller begins to wait or gives up
	Acquired                    // the lock was acquired, after Waited and Attempts
	Renewed                     // the lease was renewed
	Released                    // the lock was released, after Held
	Lost                        // the server no longer knows the token
	Expired                     // the lease expired without release or renewal
	HandedOver                  // follows the end of a hold: the lock went to the waiter with this Token, which has yet to claim it
	Failed                      // an attempt ended with Err, other than ErrHeld
	NotRenewed                  // a renewal failed with Err or is late; another one follows
	Undone                      // a given-up attempt was undone; with Err it was not, but its TTL has passed
	GaveUp                      // a call of Lock failed with Err, after Waited and Attempts

	eventKinds = iota
)

// String returns the name for logs.
func (k EventKind) String() string {
	names := [...]string{"contended", "acquired", "renewed", "released", "lost", "expired", "handed over",
		"failed", "not renewed", "undone", "gave up", "unknown"}
	return names[min(k, eventKinds)]
}

// Event is a change of one lock of a client.
type Event struct {
	Kind     EventKind
	At       time.Time
	Key      string
	Owner    string
	Token    string        // of this attempt; none for Contended and GaveUp; of the next holder for HandedOver
	Attempts int           // Acquired, GaveUp: number of attempts; one may send several commands
	Waited   time.Duration // Acquired, GaveUp: time since Lock or TryLock was called
	Held     time.Duration // Released, Lost, Expired: time since the acquire
	Late     time.Duration // Renewed: sent this long after it was due
	Err      error         // Failed, NotRenewed, Undone, GaveUp: reason
}

// Stats are counts of a client and all clients that share its connections, since New.
type Stats struct {
	Leases  int // valid now
	Waiting int // calls of Lock in progress

	Acquired, Renewed, Released, HandedOver int64
	Contended                               int64 // requests that found the lock held at the first attempt
	GaveUp                                  int64 // calls of Lock that failed
	Failed                                  int64 // attempts that ended with an error other than ErrHeld
	NotRenewed                              int64 // renewals that failed or were late
	Lost, Expired                           int64 // leases that ended without Unlock
	Undone                                  int64 // given-up attempts that were undone
}

// Stats returns the current counts. It sends nothing.
func (c *Client) Stats() Stats {
	n := func(k EventKind) int64 { return c.counts[k].Load() }
	return Stats{
		Leases: len(c.renewer.all(func(*hold) bool { return true })), Waiting: int(c.waits.Load()),
		Acquired: n(Acquired), Renewed: n(Renewed), Released: n(Released), HandedOver: n(HandedOver), Contended: n(Contended),
		GaveUp: n(GaveUp), Failed: n(Failed), NotRenewed: n(NotRenewed), Lost: n(Lost), Expired: n(Expired), Undone: n(Undone),
	}
}
