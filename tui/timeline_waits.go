package tui

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace/holds"
)

// parts calls yield with the part of each wait that is in a window.
func (n *lane) parts(v timeWindow) iter.Seq[holds.Wait] {
	return func(yield func(holds.Wait) bool) {
		for w := range n.Waits {
			if part, ok := w.In(v.from, v.to); ok && !yield(part) {
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
func (n *lane) waitsIn(v timeWindow) []holds.Wait {
	return slices.SortedFunc(n.parts(v), func(a, b holds.Wait) int {
		return cmp.Or(a.From.At.Compare(b.From.At), strings.Compare(a.Waiter, b.Waiter))
	})
}

// contended returns the parts of a window with waiters, in order.
func (n *lane) contended(v timeWindow) []timeWindow { return joined(n.waitsIn(v)) }

// joined returns the times of waits, in order, without overlaps.
func joined(waits []holds.Wait) (parts []timeWindow) {
	for _, w := range waits {
		if i := len(parts) - 1; i >= 0 && !w.From.At.After(parts[i].to) {
			parts[i].to = later(parts[i].to, w.To.At)
			continue
		}
		parts = append(parts, timeWindow{from: w.From.At, to: w.To.At})
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
