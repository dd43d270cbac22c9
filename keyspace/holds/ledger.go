package holds

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace"
)

// Bounds of a [Ledger]. A lock to which nothing has happened costs nothing.
const (
	maxHolds    = 512    // of one lock
	maxAllHolds = 50_000 // of all locks: about 20 MB
	maxRenewed  = 8      // times of renewals of one hold
	maxSteps    = 32     // changes of the depth of one hold
)

// Ledger records the holds and the waits of locks, wherever they are stored: a failover, or a slot
// that moves, ends nothing. The zero value is empty. It is for one goroutine at a time.
type Ledger struct {
	Most   int  // holds in all; 0 = 50,000, negative = any number
	OfLock int  // holds of one lock; 0 = 512
	Waits  int  // waits of one lock that have ended, and at most twice as many; 0 = OfLock
	All    bool // each lock of a state has a past of its own, also if nothing has happened to it

	// Ended is called with each hold that ends, and its lock, before what follows is recorded; nil = it is not
	// called. It may ask the ledger, but must not change it.
	Ended func(keyspace.ID, *Hold)

	locks  map[keyspace.ID]*Account // on any node
	added  []keyspace.ID            // locks of the holds in locks, in the order in which the holds were added
	serial uint64
	whole  time.Time // earlier holds of any lock may be discarded
}

// Account is what a [Ledger] knows of one lock, up to now: its past. Only the ledger changes it.
type Account struct {
	Lock    keyspace.ID // on any node
	Holds   []*Hold     // in the order of their begins; the ledger replaces those that last
	lasting int         // holds that have not ended
	free    time.Time   // end of the last hold that excludes others
	ended   []Wait      // in the order of their ends
	waiting []Wait      // that last; one without a name is that of all clients whose names are not known
	Whole   time.Time   // earlier holds and waits may be discarded
	most    int         // Ledger.Waits

	contended  time.Time // since when clients wait without a break of maxBreak; zero = none does
	waiterSeen time.Time // when one was read last
}

// Event records a change of a lock. Events come in the order in which they were read, before the
// state that follows them.
func (g *Ledger) Event(e *keyspace.Event) {
	id := e.Lock.ID().OnAnyNode()
	a := g.locks[id]
	if a == nil {
		found := e.Kind == keyspace.Discovered && e.Holder.Since.IsZero() && e.Holder.Seen.IsZero() // with a begin, the state has it
		if !found && !e.Kind.Ends() && e.Kind != keyspace.Acquired && e.Kind != keyspace.WaiterJoined {
			return
		}
		a = g.Account(id) // the state that follows has the other holders
	}
	now := &e.Lock
	if _, still := now.Holder(e.Holder.ID); still && e.Kind.Ends() { // the lock is gone: the event has it as it was
		now = &keyspace.Lock{}
	}
	switch {
	case e.Kind.Ends():
		a.end(g, e)
	case e.Kind == keyspace.Discovered, e.Kind == keyspace.Acquired:
		a.begin(g, now, e.Holder, e.At, e.Kind)
	case e.Kind == keyspace.WaiterLeft:
		a.leaves(e.Waiter.ID, e.At)
		return // the lock may be gone, and the event has it as it was
	default:
		a.changed(e)
	}
	a.observe(now, e.At)
}

// State corrects what the events have missed: a lock of the delta has just the holders and the
// waiters that it has there, and one that is gone has none.
func (g *Ledger) State(d keyspace.Delta) {
	for _, l := range d.Locks {
		g.read(l, d.At)
	}
	for _, id := range d.Ended() {
		g.gone(id, d.At)
	}
}

// read takes a read of a lock at a time.
func (g *Ledger) read(l *keyspace.Lock, at time.Time) {
	id := l.ID().OnAnyNode()
	if g.locks[id] != nil || g.All || l.LeastWaiters(at) > 0 {
		g.Account(id).correct(g, l, at)
	}
}

// gone takes that a lock does not exist at a time.
func (g *Ledger) gone(id keyspace.ID, at time.Time) {
	if a := g.locks[id.OnAnyNode()]; a != nil {
		a.correct(g, &keyspace.Lock{}, at)
	}
}

// correct makes the holds and the waits of a lock those of a read.
func (a *Account) correct(g *Ledger, l *keyspace.Lock, at time.Time) {
	for i, h := range a.open {
		if now, holds := l.Holder(h.Holder.ID); holds {
			a.change(i).update(l, now, at)
		} else {
			g.finish(a, a.change(i), End{keyspace.Vanished, NoProof}, between(h.Seen, at))
		}
	}
	for _, h := range l.Holders {
		a.begin(g, l, h, at, keyspace.Discovered)
	}
	a.observe(l, at)
}

// begin adds a hold, unless it is known.
func (a *Account) begin(g *Ledger, l *keyspace.Lock, holder keyspace.Holder, at time.Time, kind keyspace.EventKind) {
	if holder.ID == "" || a.find(holder.ID) >= 0 {
		return
	}
	h := &Hold{Holder: holder, Shared: shared(l, holder), Found: kind != keyspace.Acquired, Seen: at}
	var free time.Time
	if !h.Shared {
		free = a.free
	}
	h.From = began(holder, at, free, kind)
	if h.update(l, holder, at); !h.Found && (l.TTLSet > 0 || h.Shared && holder.Late == 0) {
		h.TTL = keyspace.TTLAt(cmp.Or(holder.Expires, l.Expires), at)
		h.First = h.TTL
	}
	a.insert(g, h)
}

// insert adds a hold that lasts.
func (a *Account) insert(g *Ledger, h *Hold) {
	g.serial++
	h.serial = g.serial
	i := len(a.Holds)
	if i > 0 && a.Holds[i-1].From.At.After(h.From.At) { // only a hold that is read late
		i, _ = slices.BinarySearchFunc(a.Holds, h.From.At, func(b *Hold, t time.Time) int { return cmp.Or(b.From.At.Compare(t), -1) })
	}
	a.Holds, a.lasting = slices.Insert(a.Holds, i, h), a.lasting+1
	g.count(a)
}

// began returns when a hold began that was read at a time, and that others excluded until free.
func began(h keyspace.Holder, at, free time.Time, kind keyspace.EventKind) Moment {
	if kind != keyspace.Acquired {
		at = cmp.Or(h.Seen, at)
	}
	switch {
	case !h.Since.IsZero():
		return between(keyspace.Later(keyspace.Earliest(h.Since.Add(-h.Late), at), free), at)
	case kind == keyspace.Acquired:
		return Moment{At: at, Grade: Exact}
	default:
		return Moment{At: at, Grade: NotAfter}
	}
}

// shared reports whether other holds may last beside one of a holder.
func shared(l *keyspace.Lock, h keyspace.Holder) bool {
	return h.Mode == keyspace.Read || l.Kind == keyspace.Semaphore
}

// open calls yield with the holds that last, the newest first, and their positions.
func (a *Account) open(yield func(int, *Hold) bool) {
	for i, n := len(a.Holds)-1, a.lasting; i >= 0 && n > 0; i-- {
		if a.Holds[i].Lasts() {
			if n--; !yield(i, a.Holds[i]) {
				return
			}
		}
	}
}

// find returns the position of the hold of a token that lasts; −1: there is none.
func (a *Account) find(token string) int {
	for i, h := range a.open {
		if h.Holder.ID == token {
			return i
		}
	}
	return -1
}

// change replaces a hold by a copy, which may be changed.
func (a *Account) change(i int) *Hold {
	h := *a.Holds[i]
	a.Holds[i] = &h
	return &h
}

// changed takes a change of holds that last.
func (a *Account) changed(e *keyspace.Event) {
	for i, h := range a.open {
		now, holds := e.Lock.Holder(h.Holder.ID)
		if !holds || e.Holder.ID != "" && e.Holder.ID != h.Holder.ID {
			continue
		}
		h = a.change(i)
		h.update(&e.Lock, now, e.At)
		if e.Kind == keyspace.Renewed {
			h.renew(e.At)
		}
		if e.MayHave() != "" { // it may be a new hold
			h.From = Moment{At: e.At, Grade: NotAfter}
		}
	}
}

// end takes the end of a hold. One that was not known begins as its event says.
func (a *Account) end(g *Ledger, e *keyspace.Event) {
	a.begin(g, &e.Lock, e.Holder, e.Ended(), keyspace.Discovered)
	if i := a.find(e.Holder.ID); i >= 0 {
		h := a.change(i)
		h.move(e.Holder.Expires, e.Ended())
		h.Holder.DisconnectedAt, h.Holder.Expires = e.Holder.DisconnectedAt, e.Holder.Expires
		to, proof := Moment{At: e.Ended(), Grade: Exact}, proofOf(e)
		if proof == NoProof { // at some time since the last read
			to = between(h.Seen, to.At)
		}
		g.finish(a, h, End{e.Kind, proof}, to)
	}
}

// proofOf returns what an event proves of the end that it reports.
func proofOf(e *keyspace.Event) Proof {
	switch e.Kind {
	case keyspace.Vanished:
		return NoProof
	case keyspace.Released:
		if e.Announced {
			return ByMessage
		}
	case keyspace.Expired:
		if len(e.Possible) == 0 {
			return ByDeadline
		}
		return NoProof
	case keyspace.Stolen, keyspace.Replaced, keyspace.HandedOver:
		return BySuccessor
	case keyspace.Lost, keyspace.Flushed:
		return ByLoss
	}
	return ByReport
}

// finish ends a hold of a lock that may be changed.
func (g *Ledger) finish(a *Account, h *Hold, end End, to Moment) {
	h.End, h.To = end, to
	a.lasting--
	if !h.Shared {
		a.free = keyspace.Later(a.free, to.At)
	}
	if last, known := to.Latest(); known && last.Before(h.From.At) { // the end was read late
		h.From = Moment{At: last, Grade: NotAfter}
	}
	if g.Ended != nil {
		g.Ended(a.Lock, h)
	}
}

// count counts a hold that was added to a lock, or the lock itself. If there are too many, it discards the oldest.
func (g *Ledger) count(a *Account) {
	if len(a.Holds) > cmp.Or(g.OfLock, maxHolds) {
		a.discard()
	}
	if g.Most < 0 {
		return
	}
	if g.added = append(g.added, a.Lock); len(g.added) <= cmp.Or(g.Most, maxAllHolds) {
		return
	}
	oldest := g.added[0]
	g.added = g.added[1:]
	switch a := g.locks[oldest]; {
	case a == nil:
	case a.discard():
		g.whole = keyspace.Later(g.whole, a.Whole)
	case len(a.waiting) == 0: // it has only holds that last, and old waits
		last, _ := a.Last()
		g.whole = keyspace.Later(g.whole, last)
		delete(g.locks, oldest) // the next event, or a state with waiters, opens it again
	}
}

// discard discards the oldest hold that has ended, and the waits before it and the others. It is false if there is
// no such hold.
func (a *Account) discard() bool {
	i := slices.IndexFunc(a.Holds, func(h *Hold) bool { return !h.Lasts() })
	if i < 0 {
		return false
	}
	a.Whole = keyspace.Later(a.Whole, a.Holds[i].To.At)
	a.Holds = slices.Delete(a.Holds, i, i+1)
	needed := a.Whole
	if len(a.Holds) > 0 {
		needed = keyspace.Earliest(needed, a.Holds[0].From.At)
	}
	a.ended = slices.DeleteFunc(a.ended, func(w Wait) bool { return !w.To.At.After(needed) })
	return true
}

// newest returns the last n elements of a list.
func newest[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[len(all)-n:])
}

// Begin records that a client holds a lock from a moment on, as it reports itself. Some unsound kinds
// of lock let several clients hold it at the same time.
func (g *Ledger) Begin(id keyspace.ID, holder keyspace.Holder, shared bool, at time.Time) {
	g.Account(id).insert(g, &Hold{Holder: holder, Shared: shared, From: Moment{At: at, Grade: Exact}, Seen: at})
}

// End records that a hold has ended at a moment, as its client reports itself.
func (g *Ledger) End(id keyspace.ID, token string, at time.Time, kind keyspace.EventKind) {
	a := g.Account(id)
	if i := a.find(token); i >= 0 {
		g.finish(a, a.change(i), End{kind, ByReport}, Moment{At: at, Grade: Exact})
	}
}

// Wait records that a client waits from a moment on, as it reports itself.
func (g *Ledger) Wait(id keyspace.ID, client string, at time.Time) {
	if a := g.Account(id); a.waits(client) < 0 {
		a.join(keyspace.Waiter{ID: client, Since: at}, at)
	}
}

// Leave records that a client waits no longer.
func (g *Ledger) Leave(id keyspace.ID, client string, at time.Time) { g.Account(id).leaves(client, at) }

// Halt ends all holds and waits, which were seen last at a moment.
func (g *Ledger) Halt(at time.Time) {
	for _, a := range g.locks {
		seen := Moment{At: at, Grade: NotBefore}
		for i := range a.open {
			g.finish(a, a.change(i), End{keyspace.Vanished, NoProof}, seen)
		}
		for _, w := range a.waiting {
			a.waited(w, seen)
		}
		a.waiting = nil
	}
}

// Account returns the account of a lock on any node, which may be new.
func (g *Ledger) Account(id keyspace.ID) *Account {
	if g.locks == nil {
		g.locks = make(map[keyspace.ID]*Account)
	}
	a := g.locks[id]
	if a == nil {
		a = &Account{Lock: id, Whole: g.whole, most: cmp.Or(g.Waits, g.OfLock, maxHolds)}
		g.locks[id] = a
		g.count(a)
	}
	return a
}

// Clone returns a copy of the ledger, for another goroutine. It shares the holds, which never change.
func (g *Ledger) Clone() *Ledger {
	c := *g
	c.locks, c.added = make(map[keyspace.ID]*Account, len(g.locks)), slices.Clone(g.added)
	for id, a := range g.locks {
		copied := *a
		copied.Holds, copied.ended, copied.waiting = slices.Clone(a.Holds), slices.Clone(a.ended), slices.Clone(a.waiting)
		c.locks[id] = &copied
	}
	return &c
}

// add takes the pasts of locks that g does not know. other must not be used later.
func (g *Ledger) add(other *Ledger) {
	g.serial = max(g.serial, other.serial)
	for id, a := range other.locks {
		if g.locks[id] != nil {
			continue
		}
		g.Account(id)
		g.locks[id] = a
		for range a.Holds {
			g.count(a)
		}
	}
}

// Drop forgets a lock.
func (g *Ledger) Drop(id keyspace.ID) { delete(g.locks, id.OnAnyNode()) }

// Has reports whether a lock has a past: something has happened to it.
func (g *Ledger) Has(id keyspace.ID) bool { return g.locks[id.OnAnyNode()] != nil }

// Len returns the number of locks with a past.
func (g *Ledger) Len() int { return len(g.locks) }

// Whole returns since when the pasts of all locks are whole.
func (g *Ledger) Whole() time.Time { return g.whole }

// Locks yields the locks with a past, in no order.
func (g *Ledger) Locks(yield func(keyspace.ID) bool) {
	for id := range g.locks {
		if !yield(id) {
			return
		}
	}
}

// Of returns the account of a lock. One without a past of its own has only the holds of now, a read of it
// at a time; nil: it was not read.
func (g *Ledger) Of(id keyspace.ID, now *keyspace.Lock, at time.Time) *Account {
	id = id.OnAnyNode()
	a := g.locks[id]
	if a == nil {
		a = &Account{Lock: id, Whole: g.whole}
		if now == nil {
			now = &keyspace.Lock{}
		}
		for _, h := range now.Holders {
			a.Holds = append(a.Holds, &Hold{Holder: h, Shared: shared(now, h), From: began(h, at, time.Time{}, keyspace.Discovered), Seen: at})
		}
		slices.SortStableFunc(a.Holds, func(a, b *Hold) int { return a.From.At.Compare(b.From.At) })
	}
	return a
}

// Waits yields the waits that have ended, in the order of their ends, then the others.
func (a *Account) Waits(yield func(Wait) bool) {
	for _, all := range [][]Wait{a.ended, a.waiting} {
		for _, w := range all {
			if !yield(w) {
				return
			}
		}
	}
}

// Last returns the end of the last hold or wait, and whether one lasts. It is zero if there was none.
func (a *Account) Last() (last time.Time, lasts bool) {
	for _, h := range a.Holds {
		last, lasts = keyspace.Later(last, h.To.At), lasts || h.Lasts()
	}
	for w := range a.Waits {
		last, lasts = keyspace.Later(last, w.To.At), lasts || w.Lasts()
	}
	return last, lasts
}

// After returns the hold that followed another one: the first that was read when it had ended.
func (a *Account) After(h *Hold) (*Hold, bool) {
	if h.Lasts() {
		return nil, false
	}
	for _, next := range a.Holds {
		if began, _ := next.From.Latest(); next.serial != h.serial && !began.Before(h.To.At) {
			return next, true
		}
	}
	return nil, false
}
