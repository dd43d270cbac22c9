package lock

import "time"

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events that [Config.Observe] receives.
const (
	Contended  EventKind = iota // another client holds the lock; the caller begins to wait or gives up
	Acquired                    // the lock was acquired, after Elapsed and Attempts
	Renewed                     // the lease was renewed
	Released                    // the lock was released, after Elapsed
	Lost                        // the server no longer knows the token
	Expired                     // the lease expired without release or renewal
	HandedOver                  // follows the end of a hold: the lock went to the waiter with this Token, which has yet to claim it
	Failed                      // an attempt ended with Err, other than ErrHeld
	NotRenewed                  // a renewal failed with Err or is late; another one follows
	Undone                      // a given-up attempt was undone; with Err it was not, but its TTL has passed
	GaveUp                      // a call of Lock failed with Err, after Elapsed and Attempts

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
	Elapsed  time.Duration // Acquired, GaveUp: since Lock or TryLock was called; Released, Lost, Expired: since the acquire; Renewed: since it was due, when it was sent
	Err      error         // Failed, NotRenewed, Undone, GaveUp: reason
}

// Stats are counts of a client and all clients that share its connections.
type Stats struct {
	Leases  int                 // valid now
	Waiting int                 // calls of Lock in progress
	Events  map[EventKind]int64 // since New, with and without [Config.Observe]
}

// Stats returns the current counts. It sends nothing.
func (c *Client) Stats() Stats {
	if c.isZero() {
		return Stats{}
	}
	s := Stats{Leases: len(c.renewer.all(func(*hold) bool { return true })), Waiting: int(c.waits.Load()), Events: make(map[EventKind]int64, eventKinds)}
	for k := range c.counts {
		s.Events[EventKind(k)] = c.counts[k].Load()
	}
	return s
}
