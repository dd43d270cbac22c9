package incident

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"maps"
	"math"
	"net"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// track is what is known of one lock, besides its holds and waits.
type track struct {
	*holds.Account
	id       keyspace.ID
	format   string
	first    time.Time       // of the first frame with the lock
	usually  []time.Duration // of the latest holds
	sorted   []time.Duration // the same, from short to long
	ended    int             // holds
	heldFor  time.Duration   // by these holds
	waited   holds.Waiting   // until counted
	counted  time.Time
	seen     span        // from the first hold or wait to the last
	last     *holds.Hold // that ended
	released bool        // a hold ended before its deadline
	free     bool        // nobody holds the lock since
	brought  string      // the last token that came from another lock, with its deadline; "" = none
	from     string      // that lock
	faults   []fault
	pending  []fault // of holds that ended before a usual hold was known, with the cost of the whole hold
}

// judge records a hold that has ended, and its fault.
func (b *Builder) judge(lock keyspace.ID, h *holds.Hold) {
	t, end := b.locks[lock], ended(h, time.Time{})
	t.follow()
	if t.last != nil { // a wait is read later than it began
		t.count(t.last.To.At)
	}
	first, _ := h.From.Latest()
	t.seen = span{cmp.Or(t.seen.From, first), keyspace.Later(t.seen.To, end)}
	t.ended++
	released := h.End.Kind == keyspace.Released || h.End.Kind == keyspace.HandedOver
	t.released = t.released || released
	t.heldFor += max(0, end.Sub(first))
	known := len(t.sorted) >= 2*minUsual || t.usual().known()
	if begun(h) && !t.vague(h) && (released || h.End.Kind == keyspace.Replaced) && deadFrom(h).IsZero() { // another end says nothing of how long the work takes
		t.learn(max(0, end.Sub(began(h))))
	}
	switch f := t.faultOf(h, end); {
	case known, f.cause != "" && f.cause != Expired:
		t.addFault(f)
	case f.cause != "" || h.End.Proof != holds.NoProof && end.Sub(began(h)) >= minSlow: // a usual hold says more
		f.From = began(h)
		t.price(&f)
		t.pending = append(t.pending, f)
	}
	if len(t.pending) > 0 && (t.usual().known() || len(t.pending) > keptHolds) {
		for i := range t.pending {
			t.addFault(t.settled(t.pending[i]))
		}
		t.pending = nil
	}
	t.last, t.free = h, h.End.Proof != holds.NoProof && !slices.ContainsFunc(t.Holds, (*holds.Hold).Lasts)
}

// learn adds how long a usual hold lasted.
func (t *track) learn(d time.Duration) {
	if len(t.usually) == keptDurations {
		i, _ := slices.BinarySearch(t.sorted, t.usually[0])
		t.sorted = slices.Delete(t.sorted, i, i+1)
		t.usually = t.usually[:copy(t.usually, t.usually[1:])]
	}
	i, _ := slices.BinarySearch(t.sorted, d)
	t.usually, t.sorted = append(t.usually, d), slices.Insert(t.sorted, i, d)
}

// usual returns how long the lock is usually held, without the holds that are extremely long.
func (t *track) usual() Usual {
	if len(t.usually) < minUsual {
		return Usual{}
	}
	median := t.sorted[len(t.sorted)/2]
	n, _ := slices.BinarySearch(t.sorted, extreme*median+1)
	return Usual{n, median, t.sorted[min(n-1, n*99/100)]}
}

// count adds the waits until a time.
func (t *track) count(to time.Time) {
	if !to.After(t.counted) {
		return
	}
	w := t.Waiting(t.counted, to)
	t.waited.Total, t.waited.Any, t.waited.Most = t.waited.Total+w.Total, t.waited.Any+w.Any, max(t.waited.Most, w.Most)
	t.counted = to
}

// follow tells the faults which hold came next, and records the time before if the lock was free for too long.
func (t *track) follow() {
	for _, all := range [][]fault{t.faults, t.pending} {
		for i := range all {
			if f := &all[i]; f.next == nil && !f.hold.Shared {
				f.next, _ = t.After(f.hold)
			}
		}
	}
	if !t.free {
		return
	}
	if next, ok := t.After(t.last); ok {
		t.free = false
		f := t.freeUntil(began(next))
		f.next = next
		t.addFault(f)
	}
}

// freeUntil returns the fault of a lock that no client held until a time, although some waited. It ends when
// the last of them stops to wait.
func (t *track) freeUntil(until time.Time) (f fault) {
	freed := t.last.To.At
	w := t.Waiting(freed, until)
	if w.Any < freeTooLong {
		return f
	}
	if until.Sub(w.Last) >= freeTooLong {
		until = w.Last
	}
	return fault{cause: SlowHandOff, span: span{freed, until}, hold: t.last, blocked: w.Total, clients: w.Most}
}

// began returns when a hold began, as a story tells it: when its begin was read. The begin of a hold that was
// found is the earliest one, if that is known.
func began(h *holds.Hold) time.Time {
	if h.From.Grade == holds.Between && !h.Found {
		return h.From.Upto
	}
	return h.From.At
}

// ended returns when a hold had ended at the latest, or now while it lasts.
func ended(h *holds.Hold, now time.Time) time.Time {
	if h.To.Grade == holds.Between {
		return h.To.Upto
	}
	return h.Until(now)
}

// begun reports whether the earliest begin of a hold is known.
func begun(h *holds.Hold) bool { return h.From.Grade != holds.NotAfter }

// vague reports whether a hold was found, and may have begun far later than its begin is told.
func (t *track) vague(h *holds.Hold) bool {
	return h.Found && h.From.At.Before(t.first) && h.From.Upto.Sub(h.From.At) > together
}

// deadFrom returns since when the client of a hold is disconnected; zero: it is not, or it renewed the lock later.
func deadFrom(h *holds.Hold) time.Time {
	if h.LastRenewal().After(h.Holder.DisconnectedAt) {
		return time.Time{}
	}
	return h.Holder.DisconnectedAt
}

// connected reports whether the connection of the client was seen, and did not end. If several
// connections have its name, the holder has their host alone, and one of another process may be left.
func connected(h *holds.Hold) bool {
	_, _, err := net.SplitHostPort(h.Holder.Addr)
	return err == nil && h.Holder.DisconnectedAt.IsZero()
}

// interval returns the mean time between two renewals.
func interval(h *holds.Hold) time.Duration {
	return h.LastRenewal().Sub(began(h)) / time.Duration(max(1, h.Renewals))
}

// bring notes the key that a new holder comes from: in the same frame, its hold of another lock ends, with the same
// deadline. RENAME does that. A client that acquires a lock sets a deadline of its own.
func (t *track) bring(now *keyspace.Event, events []keyspace.Event) {
	for i := range events {
		e := &events[i]
		same := e.Kind.Ends() && e.Holder.ID == now.Holder.ID && e.Lock.ID() != now.Lock.ID() && !e.Holder.Expires.IsZero()
		if same && e.Holder.Expires.Sub(now.Holder.Expires).Abs() <= keyspace.DeadlineJitter {
			t.brought, t.from = now.Holder.ID, e.Lock.Key
		}
	}
}

// NewIndexer returns a Builder that makes the indexes of the parts of a recording. An index has what a
// Builder learns from the frames of its part, and [Builder.Load] reads it far faster than they are read.
func NewIndexer() *Builder {
	b := NewBuilder(nil)
	b.past.OfLock, b.past.Waits, b.past.Ended = math.MaxInt, math.MaxInt, nil
	return b
}

// index is an index.
type index struct {
	Locks   holds.Parts
	Cycles  []*cycle
	Notices []keyspace.Notice
	Gaps    []span
	Policy  string
	Last    time.Time // of the last frame
}

// Index returns the index of the frames that were added since the last call. The result is for
// a Builder that knows the frames before these.
func (b *Builder) Index() []byte {
	i := index{Cycles: b.cycles, Notices: b.notices, Gaps: b.gaps, Policy: b.policy, Last: b.last}
	for _, id := range slices.SortedFunc(maps.Keys(b.locks), keyspace.ID.Compare) {
		part := b.past.Cut(id)
		if ended := len(part.Holds)+len(part.Waits) > 0; ended || !b.past.Has(id) { // the reader learns of what lasts when it ends
			part.Format = b.locks[id].format
			i.Locks = append(i.Locks, part)
		}
	}
	clear(b.locks)
	b.cycles = slices.DeleteFunc(slices.Clone(b.cycles), func(c *cycle) bool { return b.last.Sub(c.To) > gapLength })
	b.notices, b.gaps = nil, nil
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(i); err != nil {
		return nil // it is no index
	}
	return out.Bytes()
}

// Load reads an index, also while the Builder is used. It returns a function that adds its frames; nil: it is malformed.
func (b *Builder) Load(data []byte) (add func()) {
	var i index
	if gob.NewDecoder(bytes.NewReader(data)).Decode(&i) != nil {
		return nil
	}
	return func() { b.load(&i) }
}

// load adds the frames of an index.
func (b *Builder) load(i *index) {
	for _, l := range i.Locks {
		if t := b.track(l.Lock, l.Format); t != nil {
			b.past.Take(t.Account, l)
		}
	}
	for _, n := range i.Notices {
		b.notice(n)
	}
	for _, c := range i.Cycles {
		*b.cycle(c.Name, c.From) = *c
	}
	b.gaps, b.policy, b.last = append(b.gaps, i.Gaps...), i.Policy, i.Last
	b.forget()
}
