package tui

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
)

// laneWait is the wait of n clients for a lock.
type laneWait struct {
	client   string // "" if only the number is known
	n        int
	asked    bool // n is 1: at least one client has asked for the lock again and again
	from, to time.Time
}

// joins notes that a client waits since a time.
func (n *lane) joins(client string, since time.Time) {
	if n.waiting == nil {
		n.waiting = make(map[string]time.Time)
	}
	if _, known := n.waiting[client]; !known {
		n.waiting[client] = since
	}
}

// leaves notes that a client waits no longer.
func (n *lane) leaves(client string, at time.Time) {
	if since, waits := n.waiting[client]; waits {
		delete(n.waiting, client)
		n.waited(laneWait{client: client, n: 1, from: since, to: at})
	}
}

// waited adds a wait that has ended.
func (n *lane) waited(w laneWait) {
	if !w.to.After(w.from) {
		return
	}
	if n.waits = newest(append(n.waits, w), maxHolds); len(n.waits) == maxHolds {
		n.whole = later(n.whole, n.waits[0].to)
	}
}

// stopWaiting ends all waits.
func (n *lane) stopWaiting(at time.Time) { n.observe(&keyspace.Lock{}, at) }

// observe takes the waiters of a lock as they are at a time. A client that only asks has waited up
// to its last request.
func (n *lane) observe(l *keyspace.Lock, at time.Time) {
	for client := range n.waiting {
		if !slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return w.ID == client }) {
			n.leaves(client, at)
		}
	}
	for i := range l.Waiters {
		n.joins(l.Waiters[i].ID, at.Add(-l.Waiters[i].Age(at).Duration))
	}
	now := laneWait{n: l.WaiterCount() - len(l.Waiters), from: at, to: at}
	if l.LeastWaiters(at) > l.WaiterCount() {
		now = laneWait{n: 1, asked: true, from: l.AskedAt, to: l.AskedAt}
	}
	was := &n.unnamed
	if !was.asked {
		was.to = at
	}
	if was.n == now.n && was.asked == now.asked && now.to.Sub(was.to) <= keyspace.AskedWithin {
		was.to = now.to
		return
	}
	if was.n > 0 {
		n.waited(*was)
	}
	*was = now
}

// waiters returns the number of current waiters.
func (n *lane) waiters() int { return len(n.waiting) + n.unnamed.n }

// parts calls yield with the part of each wait that is in a window.
func (n *lane) parts(v timeWindow) iter.Seq[laneWait] {
	return func(yield func(laneWait) bool) {
		goesOn := true
		part := func(w laneWait) {
			if w.from, w.to = later(w.from, v.from), earlier(w.to, v.to); goesOn && w.to.After(w.from) {
				goesOn = yield(w)
			}
		}
		for _, w := range n.waits {
			part(w)
		}
		for client, since := range n.waiting {
			part(laneWait{client: client, n: 1, from: since, to: v.to})
		}
		if now := n.unnamed; now.n > 0 {
			if !now.asked {
				now.to = v.to
			}
			part(now)
		}
	}
}

// waitsIn returns the parts of the waits that are in a window, in the order of their begin.
func (n *lane) waitsIn(v timeWindow) []laneWait {
	return slices.SortedFunc(n.parts(v), func(a, b laneWait) int {
		return cmp.Or(a.from.Compare(b.from), strings.Compare(a.client, b.client))
	})
}

// contended returns the parts of a window with waiters, in order.
func (n *lane) contended(v timeWindow) []timeWindow {
	var parts []timeWindow
	for _, w := range n.waitsIn(v) {
		if i := len(parts) - 1; i >= 0 && !w.from.After(parts[i].to) {
			parts[i].to = later(parts[i].to, w.to)
			continue
		}
		parts = append(parts, timeWindow{from: w.from, to: w.to})
	}
	return parts
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
