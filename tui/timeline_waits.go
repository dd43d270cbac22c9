package tui

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace/holds"
)

// laneWait is the part of a wait that is in a window.
type laneWait struct {
	client   string // "" if only the number is known
	n        int
	asked    bool // n is 1: at least one client has asked for the lock again and again
	from, to time.Time
}

// parts calls yield with the part of each wait that is in a window.
func (n *lane) parts(v timeWindow) iter.Seq[laneWait] {
	return func(yield func(laneWait) bool) {
		for w := range n.Waits {
			part := laneWait{w.Waiter, w.Clients, w.Source == holds.Asked, later(w.From.At, v.from), earlier(w.Until(v.to), v.to)}
			if part.to.After(part.from) && !yield(part) {
				return
			}
		}
	}
}

// waiters returns the number of current waiters.
func (n *lane) waiters() (clients int) {
	for w := range n.Waits {
		if w.Lasts() {
			clients += w.Clients
		}
	}
	return clients
}

// waitsIn returns the parts of the waits that are in a window, in the order of their begin.
func (n *lane) waitsIn(v timeWindow) []laneWait {
	return slices.SortedFunc(n.parts(v), func(a, b laneWait) int {
		return cmp.Or(a.from.Compare(b.from), strings.Compare(a.client, b.client))
	})
}

// contended returns the parts of a window with waiters, in order.
func (n *lane) contended(v timeWindow) []timeWindow { return joined(n.waitsIn(v)) }

// joined returns the times of waits, in order, without overlaps.
func joined(waits []laneWait) (parts []timeWindow) {
	for _, w := range waits {
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
