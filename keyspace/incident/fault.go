package incident

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// fault is one reason why clients waited too long, or may have worked at the same time.
type fault struct {
	cause Cause // "" = there is none
	span
	hold    *holds.Hold
	next    *holds.Hold   // that followed; nil = none, or it is not known
	blocked time.Duration // of the clients that waited in the span
	clients int           // largest number of them
	atMost  bool          // the span began at most so early
	cycle   *cycle        // of a deadlock

	rewritten bool // its client wrote a new value over its own one, and that is this hold
	again     bool // it has the token of the hold before: acquired again, or restored
}

// early reports whether a hold ended at a deadline that was set earlier during the hold: so does a release that keeps
// the lock for a minimum time.
func (f *fault) early() bool {
	m := f.hold.Moved
	return f.cause == Expired && (f.rewritten || m != nil && !m.To.IsZero() && !m.From.IsZero() && m.From.Sub(m.To) >= time.Second && !f.hold.LastRenewal().After(m.At))
}

// price sets what the clients lost that waited in the span of a fault.
func (t *track) price(f *fault) {
	w := t.Waiting(f.From, f.To)
	f.blocked, f.clients = w.Total, w.Most
}

// addFault keeps a fault, unless there are too many: then the cheapest is dropped.
func (t *track) addFault(f fault) {
	if f.cause == "" {
		return
	}
	if t.faults = append(t.faults, f); len(t.faults) > keptHolds {
		least := slices.MinFunc(t.faults, func(a, b fault) int { return cmp.Compare(a.blocked, b.blocked) }).blocked
		cheapest := slices.IndexFunc(t.faults, func(f fault) bool { return f.blocked == least })
		t.faults = slices.Delete(t.faults, cheapest, cheapest+1)
	}
}

// faultOf returns the fault of a hold that lasted until a time.
func (t *track) faultOf(h *holds.Hold, until time.Time) fault {
	f := fault{hold: h, span: span{until, until}}
	if l := t.last; l != nil && l != h {
		f.again = h.Holder.ID == l.Holder.ID
		f.rewritten = l.End.Kind == keyspace.Replaced && h.Holder.Label != "" && h.Holder.Label == l.Holder.Label && h.End.Kind == keyspace.Expired && began(h).Sub(l.To.At) <= time.Millisecond
	}
	t.nameCause(&f)
	if f.cause == "" && !t.usual().known() && h.Renewals > 0 && t.Waiting(began(h), until).Any >= longWait {
		f.cause, f.From = Overdue, began(h)
	}
	if f.cause != "" {
		t.price(&f)
	}
	return f
}

// settled names the cause of a pending fault with what is known of usual holds. It has the cost of the whole hold.
func (t *track) settled(f fault) fault {
	began := f.From
	t.nameCause(&f)
	if f.From.Equal(f.To) {
		f.blocked, f.clients = 0, 0
	}
	f.atMost = f.atMost || f.From.After(began)
	return f
}

// nameCause sets the cause of a fault, and from when on its client may have stopped.
func (t *track) nameCause(f *fault) {
	f.cause, f.From, f.atMost = t.causeOf(f.hold, f.To)
	if shortened := (&fault{hold: f.hold, cause: Expired, rewritten: f.rewritten}); f.hold.End.Kind == keyspace.Expired && f.cause != HolderGone && shortened.early() {
		f.cause, f.From, f.atMost = Expired, f.To, false
	}
	f.From = keyspace.Earliest(cmp.Or(f.From, f.To), f.To)
	f.atMost = f.atMost || f.hold.To.Grade == holds.Between
}

// causeOf returns why a hold was too long, or ended in a way that it should not, and from when
// on its client may have stopped. atMost says that it may have been later.
func (t *track) causeOf(h *holds.Hold, until time.Time) (c Cause, from time.Time, atMost bool) {
	if dead := deadFrom(h); !dead.IsZero() && (h.End.Kind == keyspace.Expired || until.Sub(dead) >= goneTooLong) {
		if h.Holder.Expires.IsZero() {
			return NeverExpires, dead, false
		}
		return HolderGone, dead, false
	}
	if !h.Lasts() && h.End.Proof == holds.NoProof {
		return "", time.Time{}, false
	}
	switch h.End.Kind {
	case keyspace.Expired:
		return t.causeOfExpiry(h)
	case keyspace.Lost, keyspace.Evicted, keyspace.Flushed, keyspace.Deleted, keyspace.Stolen:
		return Cause(h.End.Kind), time.Time{}, false
	}
	if t.slow(until.Sub(began(h))) {
		return Overdue, began(h).Add(t.usual().P99), t.vague(h)
	}
	return "", time.Time{}, false
}

// causeOfExpiry is causeOf for a hold that ended at its deadline.
func (t *track) causeOfExpiry(h *holds.Hold) (c Cause, from time.Time, atMost bool) {
	usual := t.usual()
	switch {
	case h.Renewals > 0 && connected(h):
		return ExpiredConnected, h.LastRenewal(), true
	case h.Renewals > 0:
		return RenewalsStopped, h.LastRenewal(), true
	case !usual.known() || h.To.At.Sub(began(h)) <= 2*usual.P99:
		return Expired, time.Time{}, false
	case connected(h):
		return ExpiredConnected, began(h).Add(usual.P99), true
	default:
		return Expired, began(h).Add(usual.P99), true
	}
}

// slow reports whether a hold is far longer than a usual one, and hardly any other hold is
// nearly as long.
func (t *track) slow(held time.Duration) bool {
	if held < minSlow {
		return false
	}
	usual := t.usual()
	if !usual.known() || held < slowMedians*usual.P50 {
		return false
	}
	shorter, _ := slices.BinarySearch(t.sorted, held/3+1)
	alike := len(t.sorted) - shorter // with this one, if it has ended
	return alike <= max(3, len(t.usually)/50)
}

// found returns the faults of a lock with what is known at the end, in the order of their
// times.
func (b *Builder) found(t *track) []fault {
	t.follow()
	all := slices.Clone(t.faults)
	for i := range t.pending {
		all = append(all, t.settled(t.pending[i]))
	}
	for _, h := range t.Holds {
		if h.Lasts() {
			all = append(all, t.faultOf(h, b.last))
		}
	}
	if t.free {
		all = append(all, t.freeUntil(b.last))
	}
	all = slices.DeleteFunc(all, func(f fault) bool {
		switch f.cause {
		case "":
			return true
		case Overdue: // the holds that came later may be as long
			return t.usual().known() && !t.slow(f.hold.Until(b.last).Sub(began(f.hold)))
		case SlowHandOff: // waiting is what a lock is for, if it does not take longer than a hold
			return t.usual().known() && f.To.Sub(f.From) < t.usual().P50
		}
		return false
	})
	for _, c := range b.cycles {
		if i := slices.IndexFunc(c.Waits, func(w keyspace.Wait) bool { return w.Lock.ID().OnAnyNode() == t.id }); i >= 0 {
			cost := c.Cost[i]
			if b.keep == nil { // the other locks are known, too
				cost = c.blocked()
			}
			all = append(all, fault{cause: Cause(c.Problem().ID), span: span{c.From, c.To}, hold: new(holds.Hold), cycle: c, blocked: cost.Total, clients: cost.Most})
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	b.nameExpiries(t, all)
	for i := range all {
		if all[i].cause == Lost {
			all[i].cause = b.lossAt(all[i].To)
		}
	}
	return all
}

// nameExpiries finds the TTLs that are too short: another client acquires the lock as soon as
// it expires, and the holder is still connected, or several holds in a row end so.
func (b *Builder) nameExpiries(t *track, all []fault) {
	run := 0
	for i := range all {
		f := &all[i]
		if f.cause == SlowHandOff {
			continue
		}
		if f.cause != Expired || f.early() || b.outage(f) != nil || f.next == nil || began(f.next).Sub(f.To) > together {
			run = 0
			continue
		}
		if run++; connected(f.hold) || t.usual().Holds < run && run >= repeatedly {
			f.cause = TTLTooShort
		}
	}
}

// outage returns the notice of a server that failed, or changed its role, between the last sign of a client and the
// expiry of its hold; nil = there is none.
func (b *Builder) outage(f *fault) *keyspace.Notice {
	since := keyspace.Later(began(f.hold), f.hold.LastRenewal())
	fails := []keyspace.NoticeKind{keyspace.ServerLost, keyspace.ServerRestarted, keyspace.ServerFailover}
	for i := range b.notices {
		n := &b.notices[i]
		if f.hold.End.Kind == keyspace.Expired && slices.Contains(fails, cmp.Or(n.Change, n.Kind)) && !n.At.Before(since) && n.At.Before(f.To.Add(nearby)) {
			return n
		}
	}
	return nil
}

// lossAt returns whether a failover or a restart lost the locks at a time.
func (b *Builder) lossAt(at time.Time) Cause {
	cause, distance := Lost, nearby
	loses := map[keyspace.NoticeKind]Cause{keyspace.ServerFailover: Failover, keyspace.ServerRestarted: Restart}
	for _, n := range b.notices {
		if c, d := loses[cmp.Or(n.Change, n.Kind)], n.At.Sub(at).Abs(); c != "" && d <= distance {
			cause, distance = c, d
		}
	}
	return cause
}

// group is the faults of one incident.
type group struct {
	faults []fault
	span
}

// groups joins the faults that follow each other, and those of one cause that repeat.
func groups(all []fault) []group {
	var joined []group
	for _, f := range all {
		if n := len(joined); n > 0 && joined[n-1].takes(&f) {
			g := &joined[n-1]
			g.faults = append(g.faults, f)
			g.To = keyspace.Later(g.To, f.To)
			continue
		}
		joined = append(joined, group{[]fault{f}, f.span})
	}
	return joined
}

// number counts the faults of an incident that are of a kind.
func (g *group) number(of func(*fault) bool) (n int) {
	for i := range g.faults {
		if of(&g.faults[i]) {
			n++
		}
	}
	return n
}

// early counts the holds of an incident that ended at a deadline that was set earlier during them.
func (g *group) early() int { return g.number((*fault).early) }

// again is how long after the last fault of a cause the next one belongs to the same incident.
const again = 10 * time.Minute

// takes reports whether a fault belongs to the incident.
func (g *group) takes(f *fault) bool {
	distance := f.From.Sub(g.To)
	if distance <= together {
		return true
	}
	return f.repeats() != "" && distance <= again && slices.ContainsFunc(g.faults, func(known fault) bool { return known.repeats() == f.repeats() })
}

// repeats returns the cause of a fault that belongs to earlier ones of the same cause; "" if
// each such fault is an incident of its own.
func (f *fault) repeats() Cause {
	return map[Cause]Cause{Expired: Expired, TTLTooShort: Expired, SlowHandOff: SlowHandOff}[f.cause]
}

// main returns the fault that explains the incident.
func (g *group) main() *fault {
	for _, explains := range []Cause{Deadlock, PossibleDeadlock, TTLTooShort} {
		if i := slices.IndexFunc(g.faults, func(f fault) bool { return f.cause == explains }); i >= 0 {
			return &g.faults[i]
		}
	}
	mostly := 2*g.early() > len(g.faults) && !slices.ContainsFunc(g.faults, func(f fault) bool { return f.cause != Expired && f.cause != SlowHandOff })
	return &g.faults[max(0, slices.IndexFunc(g.faults, func(f fault) bool { return f.cause != SlowHandOff && mostly == f.early() }))]
}

// cost returns the time of the clients that waited. Of two faults at the same time, the larger
// counts.
func (g *group) cost() (blocked time.Duration, clients int, atMost bool) {
	var until time.Time
	last := time.Duration(0)
	for i := range g.faults {
		f := &g.faults[i]
		if f.From.Before(until) {
			blocked -= min(last, f.blocked)
			last = max(last, f.blocked)
		} else {
			last = f.blocked
		}
		blocked += f.blocked
		until = keyspace.Later(until, f.To)
		clients = max(clients, f.clients)
		atMost = atMost || f.atMost && f.blocked > 0
	}
	return blocked, clients, atMost
}
