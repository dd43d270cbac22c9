package holds

import (
	"slices"
	"time"

	"locktop/keyspace"
)

// Part is what happened to a lock in a time, for another ledger.
type Part struct {
	Lock   keyspace.ID
	Format string  // of the lock; the ledger does not know it
	Holds  []*Hold // that ended, in the order of their ends; without the lock, the depths, and all renewals but the last
	Waits  []Wait  // in the order in which they were seen; some of them last
}

// Cut returns what has happened to a lock since the last call. The ledger forgets what has ended, and the
// lock if nothing lasts.
func (g *Ledger) Cut(id keyspace.ID) Part {
	a := g.locks[id]
	if a == nil {
		return Part{Lock: id}
	}
	part, open := Part{Lock: id, Waits: slices.Collect(a.past().Waits)}, []*Hold(nil)
	for _, h := range a.holds {
		if h.Lasts() {
			open = append(open, h)
			continue
		}
		ended := *h
		ended.Lock, ended.Holder.Since, ended.Seen, ended.Depth = keyspace.ID{}, time.Time{}, time.Time{}, nil
		ended.Renewed = newest(h.Renewed, 1)
		part.Holds = append(part.Holds, &ended)
	}
	slices.SortStableFunc(part.Holds, func(a, b *Hold) int { return a.ended().Compare(b.ended()) })
	slices.SortStableFunc(part.Waits, func(a, b Wait) int { return a.Seen.Compare(b.Seen) })
	if a.holds, a.ended = open, nil; len(open)+len(a.waiting) == 0 {
		delete(g.locks, id)
	}
	return part
}

// ended returns the latest time at which a hold may have ended.
func (h *Hold) ended() time.Time {
	ended, _ := h.To.Latest()
	return ended
}

// Take adds a part that another ledger has cut, and owns its holds. A hold or a wait that is known already has
// lasted until then.
func (g *Ledger) Take(part Part) {
	a, waits := g.account(part.Lock), part.Waits
	for _, h := range part.Holds {
		for len(waits) > 0 && !waits[0].Seen.After(h.ended()) {
			a.takeWait(waits[0])
			waits = waits[1:]
		}
		h.Lock = part.Lock
		a.take(g, h)
	}
	for _, w := range waits {
		a.takeWait(w)
	}
}

// take adds a hold that has ended. One that is known already began as it is known.
func (a *account) take(g *Ledger, h *Hold) {
	end, to := h.End, h.To
	h.End, h.To = End{}, Moment{}
	if i := a.find(h.Holder.ID); i >= 0 {
		h.From, h.Found, h.serial = a.holds[i].From, a.holds[i].Found, a.holds[i].serial
		a.holds[i] = h
	} else {
		a.insert(g, h)
	}
	g.finish(a, h, end, to)
}

// takeWait adds a wait.
func (a *account) takeWait(w Wait) {
	if i := a.waits(w.Waiter); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
	if w.Lasts() {
		a.waiting = append(a.waiting, w)
	} else {
		a.waited(w, w.To)
	}
}
