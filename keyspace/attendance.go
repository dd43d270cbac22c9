package keyspace

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// attendance tells whether holders are still connected: those whose label was the
// name of a connection while they held. Of all others nobody can tell.
type attendance struct {
	called time.Time
	wanted bool          // there are holders whom it could concern
	crowd  int64         // of clients, where they are too many to be listed
	came   map[hold]bool // whose connection was seen
}

// hold is a holder of a lock.
type hold struct{ key, holder string }

// clientNames reads the names from a list of clients.
func clientNames(list string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(list) {
		for field := range strings.FieldsSeq(line) {
			if name, ok := strings.CutPrefix(field, "name="); ok && name != "" {
				names[name] = true
				break
			}
		}
	}
	return names
}

// mark returns the lock with what the names of those present tell of its holders,
// and whether that is news. It books in came whose connection was seen.
func (a *attendance) mark(l Lock, present map[string]bool, came map[hold]bool, now time.Time) (Lock, bool) {
	changed := false
	for i, h := range l.Holders {
		id := hold{l.Key, h.ID}
		here := nameable(h) && present[h.Label]
		if here || a.came[id] {
			came[id] = true
		}
		left := h.Left
		switch {
		case here || !came[id]:
			left = time.Time{}
		case left.IsZero():
			left = now
		}
		if left.Equal(h.Left) {
			continue
		}
		if !changed {
			l.Holders, changed = slices.Clone(l.Holders), true
		}
		l.Holders[i].Left = left
	}
	return l, changed
}

// anyNamed reports whether there are holders that could be known by name.
func (p picture) anyNamed() bool {
	for _, l := range p {
		if slices.ContainsFunc(l.lock.Holders, nameable) {
			return true
		}
	}
	return false
}

// nameable reports whether the label of a holder can be the name of a connection.
func nameable(h Holder) bool { return h.Label != "" && !strings.ContainsAny(h.Label, " \n") }

// blind says why nobody can tell whether holders are connected.
func (a *attendance) blind(refused bool) []string {
	switch {
	case !a.wanted:
		return nil
	case refused:
		return []string{"whether holders are still connected: this user may not send CLIENT LIST"}
	case a.crowd > rollMost:
		return []string{fmt.Sprintf("whether holders are still connected: %d clients are too many to list", a.crowd)}
	}
	return nil
}
