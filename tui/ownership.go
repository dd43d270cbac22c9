package tui

import (
	"slices"
	"strings"

	"locktop/humanize"
	"locktop/keyspace"
)

// ownership lists the other locks of an owner.
type ownership struct {
	holds []string // keys of other locks that it holds
	waits []string // keys that it waits for, with their holders
	stuck bool     // deadlock: it waits for a client that waits for it
}

// namesListed is the maximum number of keys listed per owner.
const namesListed = 6

// elsewhere finds the other locks that a holder holds or waits for. It finds none for libraries
// that make a new token for each hold.
func (v lockView) elsewhere(h *keyspace.Holder) (o ownership) {
	s := v.state
	locks := s.current().locks
	for i := range locks {
		other := &locks[i]
		if other.Key == v.Key && other.ID() == v.ID() {
			continue
		}
		if slices.ContainsFunc(other.Holders, func(theirs keyspace.Holder) bool { return theirs.Name() == h.Name() }) {
			o.holds = append(o.holds, s.redactKey(other.Key))
		}
		if !slices.ContainsFunc(other.Waiters, func(w keyspace.Waiter) bool { return waitsAs(w, h) }) {
			continue
		}
		text := s.redactKey(other.Key)
		for j := range other.Holders {
			theirs := &other.Holders[j]
			if j == 0 {
				text += ", which " + s.redactOwner(theirs.Name()) + " holds"
			}
			o.stuck = o.stuck || slices.ContainsFunc(v.Waiters, func(w keyspace.Waiter) bool { return waitsAs(w, theirs) })
		}
		o.waits = append(o.waits, text)
	}
	return o
}

// waitsAs reports whether a waiter and a holder are the same client: by their IDs, or by the
// label that begins a token of package lock.
func waitsAs(w keyspace.Waiter, h *keyspace.Holder) bool {
	return w.ID == h.ID || h.Label != "" && strings.HasPrefix(w.ID, h.Label+"~")
}

// owners draws the other locks of the first three holders.
func (v lockView) owners(w int) []string {
	s := v.state
	var lines []string
	for i := range v.Holders[:min(len(v.Holders), 3)] {
		h := &v.Holders[i]
		o := v.elsewhere(h)
		if len(o.holds) > 0 {
			lines = append(lines, s.items(w, "owner", s.theme.text, s.redactOwner(h.Name())+" also holds "+listed(o.holds), 2)...)
		}
		if len(o.waits) > 0 {
			lines = append(lines, s.items(w, "owner", s.theme.warn, s.redactOwner(h.Name())+" waits for "+listed(o.waits), 2)...)
		}
		if o.stuck {
			lines = append(lines, s.items(w, "deadlock", s.theme.bad, "each of the two waits for the other", 1)...)
		}
	}
	return lines
}

// listed joins the first namesListed names.
func listed(names []string) string {
	if more := len(names) - namesListed; more > 0 {
		return strings.Join(names[:namesListed], ", ") + " and " + humanize.Count(more) + " more"
	}
	return strings.Join(names, ", ")
}
