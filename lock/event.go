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
	Failed                      // an attempt ended in an error other than ErrHeld; Err tells
	NotRenewed                  // a renewal failed, or is not answered in time; Err tells. Another try follows
	Undone                      // what a given-up attempt may have taken was taken back; Err: it was not, within its TTL
	GaveUp                      // a Lock ended without the lock; Waited, Attempts and Err tell

	eventKinds = iota
)

// String returns the word for logs.
func (k EventKind) String() string {
	return [...]string{"contended", "acquired", "renewed", "released", "lost", "expired", "handed over",
		"failed", "not renewed", "undone", "gave up"}[k]
}

// Event is one moment in the life of a lock of ours.
type Event struct {
	Kind     EventKind
	At       time.Time
	Key      string
	Owner    string
	Token    string        // of this attempt; Contended and GaveUp have none, HandedOver has the next one's
	Attempts int           // Acquired, GaveUp: commands that it took
	Waited   time.Duration // Acquired, GaveUp: since Lock or TryLock was called
	Held     time.Duration // Released, Lost, Expired: since the lease began
	Late     time.Duration // Renewed: sent this long after it was due
	Err      error         // Failed, NotRenewed, Undone, GaveUp: why
}

// Stats are what a client and all identities over its connections have done since New,
// and what they are at.
type Stats struct {
	Leases  int // held now
	Waiting int // calls of Lock that are under way

	Acquired, Renewed, Released, HandedOver int64
	Contended                               int64 // requests that found the lock held, at first
	GaveUp                                  int64 // calls of Lock that ended without the lock
	Failed                                  int64 // attempts that ended in an error other than ErrHeld
	NotRenewed                              int64 // renewals that failed, or were not answered in time
	Lost, Expired                           int64 // leases that ended against their holder's will
	Undone                                  int64 // given-up attempts that were taken back
}

// Stats returns the figures of this moment. It sends nothing.
func (c *Client) Stats() Stats {
	n := func(k EventKind) int64 { return c.counts[k].Load() }
	return Stats{
		Leases: len(c.renewer.all(func(*hold) bool { return true })), Waiting: int(c.waits.Load()),
		Acquired: n(Acquired), Renewed: n(Renewed), Released: n(Released), HandedOver: n(HandedOver), Contended: n(Contended),
		GaveUp: n(GaveUp), Failed: n(Failed), NotRenewed: n(NotRenewed), Lost: n(Lost), Expired: n(Expired), Undone: n(Undone),
	}
}
