package holds

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace"
)

// join takes that a client waits that did not.
func (a *Account) join(w keyspace.Waiter, at time.Time) {
	from := since(w, at)
	for i := len(a.ended) - 1; i >= 0 && a.ended[i].To.At.After(from.At); i-- {
		if a.ended[i].Waiter == w.ID { // its entry was not seen for a moment
			from.At = a.ended[i].To.At
		}
	}
	source := Stored
	if w.Polls {
		source = Seen
	}
	a.waiting = append(a.waiting, Wait{Waiter: w.ID, Clients: 1, Source: source, From: from, Seen: at, Proven: at})
}

// since returns since when a client waits that was read at a time.
func since(w keyspace.Waiter, at time.Time) Moment {
	switch {
	case !w.Since.IsZero():
		return Moment{At: w.Since, Grade: Exact}
	case !w.Seen.IsZero():
		return Moment{At: w.Seen, Grade: NotAfter}
	}
	return Moment{At: at, Grade: NotAfter}
}

// waits returns the position of the wait of a client that lasts; −1: there is none.
func (a *Account) waits(client string) int {
	return slices.IndexFunc(a.waiting, func(w Wait) bool { return w.Waiter == client })
}

// leaves takes that a client waits no longer.
func (a *Account) leaves(client string, at time.Time) {
	if i := a.waits(client); i >= 0 {
		a.left(i, at)
	}
}

// left ends a wait.
func (a *Account) left(i int, at time.Time) {
	w := a.waiting[i]
	a.waiting = slices.Delete(a.waiting, i, i+1)
	a.waited(w, Moment{At: at, Grade: Exact})
}

// waited adds a wait that has ended.
func (a *Account) waited(w Wait, to Moment) {
	if w.To = to; !to.At.After(w.From.At) {
		return
	}
	a.ended = append(a.ended, w)
	if len(a.ended)/2 > a.most {
		a.ended = newest(a.ended, a.most)
		a.Whole = keyspace.Later(a.Whole, a.ended[0].To.At)
	}
}

// observe takes the waiters of a lock as they are at a time. One that counts as dead does not wait. A
// client that only asks has waited up to its last request.
func (a *Account) observe(l *keyspace.Lock, at time.Time) {
	if at.Sub(a.waiterSeen) > keyspace.MaxBreak {
		a.contended = time.Time{}
	}
	if l.WaiterCount() > 0 {
		a.contended, a.waiterSeen = cmp.Or(a.contended, at), at
	}
	var joined map[string]bool
	for _, w := range l.Waiters {
		if joined == nil {
			joined = make(map[string]bool, len(l.Waiters))
		}
		joined[w.ID] = w.DeadFor(at) == 0
	}
	for i := len(a.waiting) - 1; i >= 0; i-- {
		switch w := &a.waiting[i]; {
		case joined[w.Waiter]:
			w.Proven = at
			delete(joined, w.Waiter)
		case w.Waiter != "":
			a.left(i, at)
		}
	}
	for _, w := range l.Waiters {
		if joined[w.ID] {
			a.join(w, at)
			delete(joined, w.ID)
		}
	}
	now := Wait{Clients: l.WaiterCount() - len(l.Waiters), Source: Stored, From: Moment{At: at, Grade: NotAfter}, Seen: at, Proven: at}
	if l.LeastWaiters(at) > l.WaiterCount() {
		now = Wait{Clients: 1, Source: Asked, From: Moment{At: l.AskedAt, Grade: NotAfter}, Seen: l.AskedAt, Proven: l.AskedAt}
	}
	if i := a.waits(""); i >= 0 {
		was := &a.waiting[i]
		if was.Source == Stored {
			was.Proven = at
		}
		if was.Clients == now.Clients && was.Source == now.Source && now.Proven.Sub(was.Proven) <= keyspace.AskedWithin {
			was.Proven = now.Proven
			return
		}
		a.left(i, was.Proven)
	}
	if now.Clients > 0 {
		a.waiting = append(a.waiting, now)
	}
}

// Waiting is how clients waited in a span.
type Waiting struct {
	Total time.Duration // of all clients
	Any   time.Duration // in which at least one waited
	Most  int           // clients at the same time
	Last  time.Time     // until when one waited; zero = none did
}

// Waiting returns how the clients waited that the library stores, or of which it stores the number, and those that
// MONITOR has shown.
func (a *Account) Waiting(from, to time.Time) Waiting {
	var parts []Wait
	for w := range a.Waits {
		if part, ok := w.In(from, to); ok && w.Source != Asked {
			parts = append(parts, part)
		}
	}
	return Sum(parts)
}

// Sum returns how the clients of waits that have ended waited.
func Sum(waits []Wait) (all Waiting) {
	type change struct {
		at      time.Time
		clients int
	}
	var changes []change
	for _, w := range waits {
		changes = append(changes, change{w.From.At, w.Clients}, change{w.To.At, -w.Clients})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.clients-b.clients) })
	clients := 0
	for i, c := range changes {
		if clients > 0 {
			d := c.at.Sub(changes[i-1].at)
			all.Total, all.Any, all.Last = all.Total+time.Duration(clients)*d, all.Any+d, c.at
		}
		clients += c.clients
		all.Most = max(all.Most, clients)
	}
	return all
}
