// Package incident explains what happened to a lock: which client held it, how the hold ended,
// what that cost the clients that waited, and what is not known.
//
// The package is pure: its input are the frames of a recording or of a live watch. It names
// only a cause that the frames prove.
package incident

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// Cause is why clients waited longer than they had to, or why two of them may have worked at
// the same time: the ID of a problem that is marked as a cause.
type Cause string

// The causes; [keyspace.Causes] says what each means.
const (
	HolderGone       Cause = "holder-gone"
	ExpiredConnected Cause = "expired-connected"
	RenewalsStopped  Cause = "renewals-stopped"
	TTLTooShort      Cause = "ttl-too-short"
	Expired                = Cause(keyspace.Expired)
	Overdue          Cause = "overdue"
	NeverExpires     Cause = "never-expires"
	SlowHandOff      Cause = "slow-hand-off"
	Deadlock         Cause = "deadlock"
	PossibleDeadlock Cause = "possible-deadlock"
	Failover         Cause = "failover"
	Restart          Cause = "restart"
	Lost                   = Cause(keyspace.Lost)
	Evicted                = Cause(keyspace.Evicted)
	Flushed                = Cause(keyspace.Flushed)
	Deleted                = Cause(keyspace.Deleted)
	Stolen                 = Cause(keyspace.Stolen)
	Contended        Cause = "contended"
)

// Story is one incident of one lock.
type Story struct {
	Lock     keyspace.ID // on any node
	Format   string
	Cause    Cause
	From, To time.Time
	Ongoing  bool          // the frames end before the incident
	Headline string        // one or two sentences
	Lines    []Line        // in the order of their times
	Blocked  time.Duration // time of all clients that waited; 0 = none is known
	AtMost   bool          // Blocked is an upper bound
	Clients  int           // largest number of clients that waited
	Usual    Usual
	Unknown  []string // what the frames do not show, one clause each
	Next     string   // the next step of an operator, one or two sentences

	cycle *cycle // of a deadlock
	quiet int    // such stories come later
}

// Kinds of stories that come after the faults.
const (
	onPurpose     = 1 + iota // it may be how the clients release the lock
	onlyContended            // nothing failed
)

// Line is one moment of a story.
type Line struct {
	At   time.Time
	Text string
	Cost time.Duration // how much longer the lock was not available; 0 = not at all, or not known
	Note string        // what would have made the cost smaller, or what bounds it; may be empty
}

// Usual is how long a lock is usually held, by its finished holds. It is zero with fewer than
// five.
type Usual struct {
	Holds    int
	P50, P99 time.Duration
}

func (u Usual) known() bool { return u.Holds >= minUsual }

// Bounds and thresholds. Frames are about 1 s apart, so nothing shorter is judged.
const (
	minUsual      = 5                // finished holds from which a usual hold is known
	keptDurations = 256              // of the latest holds of a lock
	keptHolds     = 200              // with a fault, for each lock
	keptWaits     = 512              // of the latest waits of a lock
	keptNotices   = 1000             // of the servers, and deadlocks
	goneTooLong   = 5 * time.Second  // a client may be reconnecting
	freeTooLong   = 2 * time.Second  // with waiters; a hand-over takes milliseconds
	minSlow       = 5 * time.Second  // a slow hold takes at least so long
	slowMedians   = 10               // a slow hold takes more than so many usual ones
	extreme       = 20               // times the median: such a hold says nothing of the others
	longWait      = 30 * time.Second // for a renewed hold
	repeatedly    = 3                // holds in a row that ended by expiry
	together      = 2 * time.Second  // faults that are so near are one incident
	nearby        = 30 * time.Second // from a notice of a server to its effect
	gapLength     = 10 * time.Second // between two frames; nothing was recorded
)

// Builder judges the holds of locks, which a ledger takes from frames. Its memory is bounded for each
// lock. It is not safe for concurrent use.
type Builder struct {
	keep      func(keyspace.ID) bool
	past      holds.Ledger // each hold is judged as it ends
	locks     map[keyspace.ID]*track
	contended map[keyspace.ID]*keyspace.Lock
	cycles    []*cycle
	judged    time.Time // of the last search for deadlocks
	notices   []keyspace.Notice
	gaps      []span
	last      time.Time // of the last frame
	skew      time.Duration
	policy    string        // maxmemory-policy
	missing   []keyspace.ID // locks of nodes that cannot be read
}

// span is a time.
type span struct{ From, To time.Time }

// NewBuilder returns a Builder for the locks that keep selects, by their ID on any node; nil
// means all locks.
func NewBuilder(keep func(keyspace.ID) bool) *Builder {
	b := &Builder{keep: keep, locks: make(map[keyspace.ID]*track), contended: make(map[keyspace.ID]*keyspace.Lock)}
	b.past = holds.Ledger{Most: -1, OfLock: 2, Waits: keptWaits, All: true, Ended: b.judge}
	return b
}

// Add adds the next frame: the locks that have changed since the one before, as they are at
// its time, its events and its notices. A lock that is listed although it has not changed
// does no harm.
func (b *Builder) Add(d keyspace.Delta) {
	if !b.last.IsZero() && d.At.Sub(b.last) > gapLength {
		b.gaps = append(b.gaps, span{b.last, d.At})
	}
	b.last, b.policy = d.At, cmp.Or(d.Server.Policy, b.policy)
	for _, n := range d.Nodes {
		b.skew = n.Skew
	}
	for _, n := range d.Notices {
		n.At = n.At.Add(b.skew)
		b.notice(n)
	}
	for i := range d.Events {
		e := &d.Events[i]
		t := b.track(e.Lock.ID(), e.Lock.Format)
		if t == nil {
			continue
		}
		if b.past.Event(e); e.Kind == keyspace.Acquired || e.Kind == keyspace.Discovered {
			t.bring(e, d.Events)
		}
	}
	kept := d
	kept.Locks, kept.Gone = nil, b.gone(d)
	for _, l := range d.Locks {
		if b.track(l.ID(), l.Format) != nil {
			kept.Locks = append(kept.Locks, l)
		}
		id := l.ID().OnAnyNode()
		if b.missing = slices.DeleteFunc(b.missing, func(m keyspace.ID) bool { return m == id }); len(l.Waiters) > 0 {
			b.contended[id] = l
		} else {
			delete(b.contended, id)
		}
	}
	for _, id := range d.Ended() {
		delete(b.contended, id)
	}
	b.past.State(kept)
	b.searchDeadlocks(d.At)
}

// gone returns the locks that are gone in a frame. Those of a node that cannot be read are missing until all nodes can.
func (b *Builder) gone(d keyspace.Delta) (gone []keyspace.ID) {
	down := func(node string) bool {
		return slices.ContainsFunc(d.Nodes, func(n keyspace.Node) bool { return !n.Up && (node == "" || node == n.Addr) })
	}
	for _, id := range d.Gone {
		if down(id.Node) {
			b.missing = append(b.missing, id.OnAnyNode())
		} else {
			gone = append(gone, id)
		}
	}
	if len(b.missing) > 0 && !down("") {
		gone, b.missing = append(gone, b.missing...), nil
	}
	return gone
}

// State adds the full state of a moment: all locks that it does not have are gone.
func (b *Builder) State(s keyspace.Snapshot) {
	clear(b.contended)
	b.Add(keyspace.Delta{Snapshot: s, Gone: slices.Collect(b.past.Locks)})
	b.forget()
}

// notice keeps a notice, whose time is on the clock of the servers.
func (b *Builder) notice(n keyspace.Notice) {
	if len(b.notices) < keptNotices {
		b.notices = append(b.notices, n)
	}
}

// forget drops the locks that cannot have an incident: a key that is used once has no usual
// hold.
func (b *Builder) forget() {
	if len(b.locks) < 20_000 {
		return
	}
	for id, t := range b.locks {
		pends := func(f fault) bool { return t.settled(f).cause != "" }
		_, lasts := t.Last()
		if !lasts && len(t.sorted) < minUsual && len(t.faults) == 0 && b.last.Sub(t.seen.To) > again && !slices.ContainsFunc(t.pending, pends) {
			delete(b.locks, id)
			b.past.Drop(id)
		}
	}
}

// track returns what is known of a lock; nil if it is not selected.
func (b *Builder) track(id keyspace.ID, format string) *track {
	id = id.OnAnyNode()
	t := b.locks[id]
	if t == nil {
		if b.keep != nil && !b.keep(id) {
			return nil
		}
		t = &track{Account: b.past.Account(id), id: id, first: b.last, counted: b.last}
		b.locks[id] = t
	}
	t.format = format
	return t
}

// Locks returns the number of locks that were seen.
func (b *Builder) Locks() int { return len(b.locks) }

// Stories returns the incidents of all locks, the most expensive first: by the time of the
// clients that waited. Locks that are only contended are last. A deadlock is one incident, of
// one of its locks; without a selection of locks, it has the cost of all of them.
func (b *Builder) Stories() []Story {
	b.past.State(keyspace.Delta{Snapshot: keyspace.Snapshot{At: b.last}, Gone: b.missing}) // they may have ended
	b.missing = nil
	var all []Story
	for _, t := range b.locks {
		if _, lasts := t.Last(); lasts {
			t.seen = span{cmp.Or(t.seen.From, b.last), b.last}
		}
		t.count(b.last)
		all = append(all, b.stories(t)...)
	}
	slices.SortFunc(all, func(a, b Story) int { // faults before what may be on purpose, and that before contention
		return cmp.Or(a.quiet-b.quiet, cmp.Compare(b.Blocked, a.Blocked), a.From.Compare(b.From), a.Lock.Compare(b.Lock))
	})
	told := make(map[*cycle]bool)
	return slices.DeleteFunc(all, func(s Story) bool {
		again := s.cycle != nil && told[s.cycle]
		told[s.cycle] = true
		return again
	})
}

// cycle is a deadlock that was seen in several frames.
type cycle struct {
	keyspace.Deadlock
	From, To time.Time
	Name     string
	Cost     []holds.Waiting // for each lock of the cycle
}

// locks returns the names of the locks of the deadlock, in their order.
func (c *cycle) locks() (all []string) {
	for _, w := range c.Waits {
		all = append(all, w.Lock.Key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// blocked returns how long how many clients waited for the locks of the deadlock.
func (c *cycle) blocked() (all holds.Waiting) {
	for i, w := range c.Waits {
		if !slices.ContainsFunc(c.Waits[:i], func(before keyspace.Wait) bool { return before.Lock.ID() == w.Lock.ID() }) {
			all.Total += c.Cost[i].Total
			all.Most += c.Cost[i].Most
		}
	}
	return all
}

// listed returns "a, b and c".
func listed(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// cycle returns the deadlock of a name at a time: it is a new one if it was not seen for a while.
func (b *Builder) cycle(name string, at time.Time) *cycle {
	for _, c := range b.cycles {
		if c.Name == name && at.Sub(c.To) <= gapLength {
			return c
		}
	}
	c := &cycle{From: at, To: at, Name: name}
	if len(b.cycles) < keptNotices {
		b.cycles = append(b.cycles, c)
	}
	return c
}

// searchDeadlocks searches in each frame of a recording.
func (b *Builder) searchDeadlocks(at time.Time) {
	if len(b.contended) < 2 || at.Sub(b.judged) < time.Second/2 {
		return
	}
	b.judged = at
	locks := slices.SortedFunc(maps.Values(b.contended), keyspace.CompareLocks)
	for _, d := range keyspace.Deadlocks(keyspace.Snapshot{At: at, Locks: locks}) {
		name := ""
		for _, w := range d.Waits {
			name += w.Owner + "\x00" + w.Lock.Key + "\x00"
		}
		c := b.cycle(name, at)
		c.Deadlock, c.To, c.Cost = d, at, nil
		for _, w := range d.Waits {
			c.Cost = append(c.Cost, b.past.Of(w.Lock.ID(), nil, at).Waiting(c.From, at))
		}
	}
}

// clock formats a time of a story.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// long formats a duration of a story: to 100 ms, and a shorter one exactly.
func long(d time.Duration) string { return humanize.Duration(cmp.Or(d.Round(100*time.Millisecond), d)) }
