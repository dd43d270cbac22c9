// Package keyspace finds the locks in a Redis keyspace, follows them, and says
// what happened to them. What a lock looks like it learns from a list of
// formats; the one to use is in package formats.
//
// Scanner and Watcher talk to Redis, and only read. Everything else is pure:
// snapshots in, events and findings out. Time is data here, always on the
// clock of the server that holds the keys.
package keyspace

import "time"

// Kind says what discipline a lock follows, whichever library wrote it.
type Kind string

// The kinds of the JSON contract.
const (
	Mutex     Kind = "mutex"     // one holder, once
	Reentrant Kind = "reentrant" // one holder, several times
	RW        Kind = "rw"        // many readers or one writer
	Fair      Kind = "fair"      // one holder, the others in a queue
	Semaphore Kind = "semaphore" // a bounded number of holders
	Redlock   Kind = "redlock"   // one holder by a majority of independent servers
	Latch     Kind = "latch"     // counted down to zero, held by nobody
	Unknown   Kind = "unknown"   // a lock by its name, of no layout we know
)

// Mode is how a holder holds: alone or shared. It is empty where the kind has no modes.
type Mode string

// The modes of a read/write lock.
const (
	Read  Mode = "read"
	Write Mode = "write"
)

// State is the one word that sums up a lock at a moment.
type State string

// The states of the JSON contract.
const (
	Held      State = "held"    // somebody holds it
	ReadHeld  State = "read"    // held by readers
	WriteHeld State = "write"   // held by a writer
	Free      State = "free"    // nobody holds it
	Waiting   State = "waiting" // nobody holds it, somebody waits
	Stuck     State = "stuck"   // held without a deadline for longer than is usual, or by a client that is gone
	Partial   State = "partial" // on fewer nodes than a quorum
)

// Confidence says how sure a decoder is that a key is a lock of its format.
type Confidence uint8

// From "not mine" upwards. Certain means that layout or name belongs to one
// library alone; Likely that a token of a lock's shape and a second sign (a
// lock-like name, a TTL) agree; Possible is shown on request only.
const (
	No Confidence = iota
	Possible
	Likely
	Certain
)

// String returns the word of the JSON contract.
func (c Confidence) String() string {
	switch c {
	case Certain:
		return "certain"
	case Likely:
		return "likely"
	case Possible:
		return "possible"
	default:
		return "no"
	}
}

// Lock is one lock as it was found. It is a value: whoever has one may keep it,
// nobody changes its slices after it has been handed out.
//
// All times are on the clock of the server that holds the key.
type Lock struct {
	Key        string // verbatim, any bytes
	Format     string // Format.Name
	Confidence Confidence
	Kind       Kind
	Holders    []Holder // in a stable order
	Waiters    []Waiter // those that the format shows, in the order they will be served where that is known
	Expires    time.Time
	Waiting    int           // how many wait, where the format shows their number; see [Lock.WaiterCount]
	Left       int           // what a semaphore has to give, or a latch still counts down
	Limit      int           // how many a semaphore lets in, 0 = not known
	Fence      int64         // last fencing token issued, 0 = none
	Why        []string      // what speaks for its being a lock of that format, each a clause for people
	NoTTL      bool          // its library gives it no deadline, by design
	OverdueIn  time.Duration // a hold that lasts longer is overdue; 0 = locktop judges by itself
	Node       string        // host:port of the server
	DB         int

	// Votes are what each server of a Redlock has under the key, in the order of
	// the servers. Nil for every other kind.
	Votes []Vote

	// What only watching can tell; zero after a single look.
	Renewals int           // how often the expiry moved later under the same holder
	Renewed  time.Time     // when it last did
	Typical  time.Duration // the median of this key's finished holds; 0 = too few were seen
	Grown    int           // how often a holder has entered again since it last left once
	Overrun  int           // how many of the latest holds in a row ended by expiry
	FreeFrom time.Time     // since when somebody waits and nobody holds; zero = not so
}

// Vote is what one of the servers of a Redlock has under its key.
type Vote struct {
	Node    string    // host:port
	Token   string    // empty = nobody holds it there
	Expires time.Time // zero = never
	Silent  bool      // the server did not answer
}

// Holder is one owner of a lock.
type Holder struct {
	ID      string    // what the library stores: a token, a hash field …
	Label   string    // the part of it that means something to people, "" if none does
	Count   int       // reentrant depth, at least 1
	Mode    Mode      // Read or Write on an RW lock
	Since   time.Time // when the hold began: from the token where it tells, else when it was first seen; zero = before we looked
	Expires time.Time // this holder's own deadline where the format has one, else the lock's; zero = never
	Left    time.Time // since when its client, known by its label, is not connected any more; zero = it is, or nobody can tell
}

// Waiter is somebody who wants the lock, as far as the format shows it.
type Waiter struct {
	ID      string
	Mode    Mode
	Since   time.Time // from the format where it tells, else when it was first seen; zero = not known
	Expires time.Time // when it counts as dead unless it gives a sign of life; zero = not known
	Passed  int       // how many who came later got the lock before it, as far as was watched
}

// Name returns what to call the holder on a screen: its label, or its ID.
func (h Holder) Name() string {
	if h.Label != "" {
		return h.Label
	}
	return h.ID
}

// WaiterCount is how many wait for the lock, as far as the format shows: those that
// it names, or the number if that is all there is to see.
func (l Lock) WaiterCount() int { return max(len(l.Waiters), l.Waiting) }

// ID identifies a lock across snapshots.
type ID struct {
	Node string
	DB   int
	Key  string
}

// ID returns the lock's identity, which outlives changes of owner.
func (l Lock) ID() ID { return ID{l.Node, l.DB, l.Key} }

// Endless reports whether the lock is held, and only its holder can end that.
func (l Lock) Endless() bool { return len(l.Holders) > 0 && l.Expires.IsZero() }

// State sums the lock up in one word, at a time.
func (l Lock) State(now time.Time) State {
	switch {
	case len(l.Holders) == 0 && l.WaiterCount() > 0:
		return Waiting
	case len(l.Holders) == 0:
		return Free
	case len(l.Votes) > 0 && !l.hasQuorum():
		return Partial
	case l.Endless() && l.abandoned(now):
		return Stuck
	case l.Holders[0].Mode == Read:
		return ReadHeld
	case l.Holders[0].Mode == Write:
		return WriteHeld
	default:
		return Held
	}
}

// Count is the depth of the deepest hold; 0 if nobody holds the lock.
func (l Lock) Count() int {
	n := 0
	for _, h := range l.Holders {
		n = max(n, h.Count)
	}
	return n
}

// TTL is the time left at now: negative once the deadline has passed, and
// ok = false when the lock never expires.
func (l Lock) TTL(now time.Time) (left time.Duration, ok bool) {
	if l.Expires.IsZero() {
		return 0, false
	}
	return l.Expires.Sub(now), true
}

// Age is how long the longest of the holds has lasted at now; 0 if nobody
// holds the lock, or the begin of no hold is known.
func (l Lock) Age(now time.Time) time.Duration {
	var age time.Duration
	for _, h := range l.Holders {
		if !h.Since.IsZero() {
			age = max(age, now.Sub(h.Since))
		}
	}
	return age
}
