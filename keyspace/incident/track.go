package incident

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace"
)

// track is what is known of one lock.
type track struct {
	id      keyspace.ID
	log     *indexLog // nil: the faults are judged
	format  string
	waits   series
	open    []hold
	ended   *hold           // the latest that ended
	usually []time.Duration // of the latest holds
	sorted  []time.Duration // the same, from short to long
	holds   int             // that ended
	heldFor time.Duration   // of all holds that ended
	pending []hold          // ended before a usual hold was known
	faults  []fault
	seen    span      // from the first change to the last
	freed   time.Time // since when no client holds the lock; zero: one does, or it is not known
}

// hold is a hold of a client, as far as it is known.
type hold struct {
	keyspace.Holder
	began    time.Time // zero: before it was first seen
	late     bool      // began is known from its end
	read     time.Time // when its acquire was read; zero = it was not
	seen     time.Time // if began is zero: when it was first seen
	ended    time.Time // zero: it is still held
	end      keyspace.EventKind
	expires  time.Time // its last deadline; zero = none
	ttl      time.Duration
	renewals int
	renewed  time.Time
	by       string // the client that took the lock from it, if one did
	next     string // the next holder
	nextAt   time.Time
}

// event records an event.
func (t *track) event(e *keyspace.Event) {
	switch {
	case e.Kind.Ends():
		t.end(e)
	case e.Kind == keyspace.Acquired, e.Kind == keyspace.Discovered:
		t.begin(e.Lock, e.Holder, e.At, e.Kind == keyspace.Acquired)
	case e.Kind == keyspace.Renewed:
		for i := range t.open {
			if h := &t.open[i]; e.Holder.ID == "" || h.ID == e.Holder.ID {
				h.update(&e.Lock)
				h.renewed = e.At
			}
		}
	}
	if _, holds := e.Lock.Holder(e.Holder.ID); e.Kind.Ends() && holds {
		t.wait(e.At, 0) // the lock is gone, and the event has it as last seen
	} else {
		t.wait(e.At, waiting(&e.Lock, e.At))
	}
}

// observe records the state of the lock in a frame.
func (t *track) observe(l *keyspace.Lock, at time.Time) {
	for i := range l.Holders {
		t.begin(*l, l.Holders[i], at, false)
	}
	for i := len(t.open) - 1; i >= 0; i-- {
		if h := &t.open[i]; !slices.ContainsFunc(l.Holders, func(now keyspace.Holder) bool { return now.ID == h.ID }) {
			t.finish(*h, keyspace.Vanished, at) // its event is missing
		} else {
			h.update(l)
		}
	}
	t.wait(at, waiting(l, at))
}

// gone records that the lock does not exist in a frame.
func (t *track) gone(at time.Time) {
	for len(t.open) > 0 {
		t.finish(t.open[0], keyspace.Vanished, at)
	}
	t.wait(at, 0)
}

// wait records that n clients wait from a time on.
func (t *track) wait(at time.Time, n int) {
	if n != t.waits.now() {
		t.stretch(at)
		t.waits.set(at, n)
		t.log.wait(t, at, n)
	}
}

// idle reports whether no client holds the lock or waits for it.
func (t *track) idle() bool { return len(t.open) == 0 && t.waits.now() == 0 }

// stretch extends the time in which the lock was seen.
func (t *track) stretch(at time.Time) {
	t.seen = span{cmp.Or(t.seen.from, at), keyspace.Later(t.seen.to, at)}
}

// waiting returns how many clients wait that do not count as dead.
func waiting(l *keyspace.Lock, at time.Time) int {
	n := l.WaiterCount() - len(l.Waiters)
	for i := range l.Waiters {
		if l.Waiters[i].DeadFor(at) == 0 {
			n++
		}
	}
	return n
}

// begin records a holder, unless it is known.
func (t *track) begin(l keyspace.Lock, h keyspace.Holder, at time.Time, acquired bool) {
	if h.ID == "" || t.find(h.ID) >= 0 {
		return
	}
	now := hold{Holder: h, began: h.Since, seen: at}
	if acquired {
		now.read = at
		if at.Sub(now.began).Abs() > clocksApart { // a token has the time of the client
			now.began = at
		}
	}
	if now.began.IsZero() && !h.Seen.IsZero() {
		now.seen = h.Seen
	}
	now.update(&l)
	t.add(now, at)
}

// find returns the position of an open hold; -1: there is none.
func (t *track) find(id string) int {
	return slices.IndexFunc(t.open, func(h hold) bool { return h.ID == id })
}

// add adds an open hold, which was seen at a time.
func (t *track) add(now hold, at time.Time) {
	t.stretch(at)
	if len(t.open) == 0 {
		t.handOff(&now, now.from())
	}
	t.open = append(t.open, now)
	t.freed = time.Time{}
	t.log.hold(entryHold, t, at, &now)
}

// handOff records the time between two holds.
func (t *track) handOff(now *hold, at time.Time) {
	if t.ended == nil {
		return
	}
	if t.ended.next == "" {
		t.ended.next, t.ended.nextAt = now.Name(), at
		t.tell(t.ended)
	}
	if f := t.free(at); f != nil {
		if f.hold.next, f.hold.nextAt = now.Name(), at; f.to.Before(at) { // it did not wait
			f.hold.next, f.hold.nextAt = "", time.Time{}
		}
		t.addFault(*f)
	}
}

// free returns the fault of a lock that no client held until a time, although some waited. It
// ends when the last of them stops to wait.
func (t *track) free(until time.Time) *fault {
	if t.freed.IsZero() || until.Sub(t.freed) < freeTooLong {
		return nil
	}
	blocked, clients, waited := t.waits.over(t.freed, until)
	if waited < freeTooLong {
		return nil
	}
	if last := t.waits.lastUntil(until); until.Sub(last) >= freeTooLong {
		until = last
	}
	return &fault{cause: SlowHandOff, span: span{t.freed, until}, hold: *t.ended, blocked: blocked, clients: clients}
}

// tell gives the faults of a hold its next holder.
func (t *track) tell(h *hold) {
	tell := func(known *hold) {
		if known.ID == h.ID && known.ended.Equal(h.ended) && known.next == "" {
			known.next, known.nextAt = h.next, h.nextAt
		}
	}
	for i := range t.faults {
		tell(&t.faults[i].hold)
	}
	for i := range t.pending {
		tell(&t.pending[i])
	}
}

// end records the end of a hold.
func (t *track) end(e *keyspace.Event) {
	t.begin(e.Lock, e.Holder, e.At, false) // if it is not known
	i := t.find(e.Holder.ID)
	if i < 0 {
		return
	}
	h := t.open[i]
	if _, asLastSeen := e.Lock.Holder(h.ID); asLastSeen {
		h.update(&e.Lock)
	}
	h.merge(e.Holder)
	if next, ok := e.TakenBy(); ok {
		h.by = next.Name()
	}
	if h.began.IsZero() && e.Held > 0 {
		h.began, h.late = e.Ended().Add(-e.Held), true
	}
	t.finish(h, e.Kind, e.Ended())
}

// update adds what a later read of the lock knows of the hold.
func (h *hold) update(l *keyspace.Lock) {
	now, ok := l.Holder(h.ID)
	if !ok {
		return
	}
	h.merge(now)
	if len(l.Holders) == 1 && (l.Renewals > h.renewals || l.Renewed.After(h.renewed)) {
		h.renewals, h.renewed = max(l.Renewals, h.renewals), l.Renewed
	}
	from := cmp.Or(h.renewed, h.read, h.began)
	if !from.IsZero() && h.expires.After(from) {
		left, unit := h.expires.Sub(from), 100*time.Millisecond
		if left > 10*time.Second {
			unit *= 5
		}
		h.ttl = (left + unit - 1).Truncate(unit) // the client has set it, and it is read a little later
	}
}

// merge adds what a later read knows of the holder.
func (h *hold) merge(now keyspace.Holder) {
	h.DisconnectedAt = now.DisconnectedAt
	h.Addr = cmp.Or(now.Addr, h.Addr)
	if now.Renewed.After(h.renewed) {
		h.renewed = now.Renewed
		h.renewals++
	}
	h.expires = now.Expires
}

// from returns when the hold began, or was first seen.
func (h *hold) from() time.Time { return cmp.Or(h.began, h.seen) }

// until returns the end of the hold, or at if it lasts.
func (h *hold) until(at time.Time) time.Time { return cmp.Or(h.ended, at) }

// finish records the end of an open hold.
func (t *track) finish(h hold, end keyspace.EventKind, at time.Time) {
	h.end, h.ended = end, at
	t.stretch(at)
	if i := t.find(h.ID); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
	if t.log != nil {
		t.log.hold(entryEnded, t, at, &h)
		return
	}
	t.holds++
	t.heldFor += at.Sub(h.from())
	t.ended = &h
	if len(t.open) == 0 && end != keyspace.Vanished {
		t.freed = at
	}
	wasKnown := len(t.sorted) >= 2*minUsual || t.usual().known()
	if !t.suspicious(&h) && !h.began.IsZero() && end != keyspace.Vanished {
		d := at.Sub(h.began) // it counts as usual
		if len(t.usually) == keptDurations {
			i, _ := slices.BinarySearch(t.sorted, t.usually[0])
			t.sorted = slices.Delete(t.sorted, i, i+1)
			t.usually = t.usually[:copy(t.usually, t.usually[1:])]
		}
		i, _ := slices.BinarySearch(t.sorted, d)
		t.usually, t.sorted = append(t.usually, d), slices.Insert(t.sorted, i, d)
	}
	switch {
	case wasKnown:
		t.judge(h)
	default:
		t.pending = append(t.pending, h)
		if t.usual().known() {
			for _, h := range t.pending {
				t.judge(h)
			}
			t.pending = nil
		}
	}
	if wasKnown && t.pending == nil {
		t.waits.forget(h.from())
	}
}

// suspicious reports whether a hold ended in a way that says nothing of how long the work
// takes.
func (t *track) suspicious(h *hold) bool {
	switch h.end {
	case keyspace.Released, keyspace.HandedOver, keyspace.Replaced:
		return h.deadFrom().After(time.Time{})
	}
	return true
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
