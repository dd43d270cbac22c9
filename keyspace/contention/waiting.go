package contention

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// leastWait is how long a client has asked for a lock if it is sure to wait: one attempt alone is no wait.
const leastWait = time.Second

// Waiters are clients that MONITOR shows to wait, by lock on any node.
type Waiters map[keyspace.ID][]keyspace.Waiter

// Waiters returns who waits for the locks of a snapshot at the end of MONITOR. A client is that holder of another
// lock whose token it has. Without one it is the holder whose connection it has, if it waits for one lock only: a connection
// that waits for several belongs to several threads. One that waited before, as another ledger has seen, still waits.
func (g *Ledger) Waiters(s keyspace.Snapshot, before Waiters) Waiters {
	var all []seenWait
	waits, owns, flags := make(map[string]int), make(map[string]string), make(map[string]bool) // by connection; by connection; by token
	for _, a := range g.locks {
		if len(a.tries) == 0 {
			continue
		}
		w := a.seen(g.monitored)
		maps.Copy(flags, w.flags)
		if now := w.now(); now.client != "" {
			owns[now.client] = now.Holders[0].ID
		}
		names := g.names(w)
		for _, one := range w.waits() {
			if length, _ := one.Length(); one.To.Grade == holds.NotBefore && length >= leastWait {
				one.Waiter = names.of(one.last)
				all = append(all, one)
				waits[one.last.client]++
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	tokens := make(map[string]bool) // of holders
	for _, l := range s.Locks {
		for _, h := range l.Holders {
			tokens[h.ID] = !flags[h.ID] && !keyspace.SharedValue(h.ID)
			if h.Addr != "" {
				owns[h.Addr] = h.ID
			}
		}
	}
	found := make(Waiters)
	for _, one := range all {
		w, t := keyspace.Waiter{ID: one.Waiter, Polls: true}, one.last
		switch own := owns[t.client]; {
		case tokens[t.token]:
			w.ID = t.token
		case tokens[own] && waits[t.client] == 1 && !keyspace.IsThread(t.token):
			w.ID = own
		}
		switch was := slices.IndexFunc(before[one.lock], func(b keyspace.Waiter) bool { return b.ID == w.ID }); {
		case one.From.Grade == holds.Exact:
			w.Since = one.From.At
		case was >= 0:
			w = before[one.lock][was]
		default:
			w.Seen = one.From.At
		}
		found[one.lock] = append(found[one.lock], w)
	}
	for _, list := range found {
		slices.SortFunc(list, func(a, b keyspace.Waiter) int {
			return cmp.Or(a.Since.Compare(b.Since), a.Seen.Compare(b.Seen), strings.Compare(a.ID, b.ID))
		})
	}
	return found
}

// Deadlocks returns those of the last snapshot, also of clients that MONITOR shows to wait.
func (g *Ledger) Deadlocks() []keyspace.Deadlock {
	return keyspace.Deadlocks(g.Waiters(g.before, nil).AddTo(g.before))
}

// AddTo returns a snapshot with the waiters of its held locks that store none.
func (w Waiters) AddTo(s keyspace.Snapshot) keyspace.Snapshot {
	if len(w) == 0 {
		return s
	}
	s.Locks = slices.Clone(s.Locks)
	for i, l := range s.Locks {
		list := slices.DeleteFunc(slices.Clone(w[l.ID().OnAnyNode()]), func(one keyspace.Waiter) bool {
			_, holds := l.Holder(one.ID)
			return holds
		})
		if len(list) > 0 && len(l.Holders) > 0 && l.WaiterCount() == 0 {
			one := *l
			one.Waiters, s.Locks[i] = list, &one
		}
	}
	return s
}
