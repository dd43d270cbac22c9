package keyspace

import (
	"maps"
	"slices"
	"time"
)

// Change is what a snapshot says that the one before it does not: enough to
// make the one from the other, and mostly much less. It is a value like they.
type Change struct {
	Snapshot      // the later one, but only with the locks that came or changed
	Gone     []ID // of the earlier one, in its order
}

// Between returns the change from one snapshot to the next. Two readings of one
// deadline that differ by some milliseconds are no change.
func Between(old, now Snapshot) Change {
	c := Change{Snapshot: now}
	c.Locks = nil
	if n := len(now.Locks); n > 0 && n == len(old.Locks) && &now.Locks[0] == &old.Locks[0] {
		return c // they share what nobody changes
	}
	was := old.Locks
	for i := range now.Locks {
		l := &now.Locks[i]
		id := l.ID()
		for len(was) > 0 && was[0].ID().compare(id) < 0 {
			c.Gone = append(c.Gone, was[0].ID())
			was = was[1:]
		}
		if len(was) > 0 && was[0].ID() == id {
			same := alike(&was[0], l)
			was = was[1:]
			if same {
				continue
			}
		}
		c.Locks = append(c.Locks, *l)
	}
	for i := range was {
		c.Gone = append(c.Gone, was[i].ID())
	}
	return c
}

// Join makes one change of several that follow each other, at least one.
func Join(changes []Change) Change {
	c := changes[len(changes)-1]
	last := make(map[ID]*Lock) // nil: gone
	for i := range changes {
		for j := range changes[i].Locks {
			l := &changes[i].Locks[j]
			last[l.ID()] = l
		}
		for _, id := range changes[i].Gone {
			last[id] = nil
		}
	}
	c.Locks, c.Gone = nil, nil
	for _, id := range slices.SortedFunc(maps.Keys(last), ID.compare) {
		if l := last[id]; l != nil {
			c.Locks = append(c.Locks, *l)
		} else {
			c.Gone = append(c.Gone, id)
		}
	}
	return c
}

// Empty reports whether no lock came, changed or went.
func (c Change) Empty() bool { return len(c.Locks) == 0 && len(c.Gone) == 0 }

// After returns the later snapshot, made from the earlier one.
func (c Change) After(old Snapshot) Snapshot {
	now := c.Snapshot
	if c.Empty() {
		now.Locks = old.Locks
		return now
	}
	now.Locks = make([]Lock, 0, len(old.Locks)+len(c.Locks))
	gone, news := c.Gone, c.Locks
	for i := range old.Locks {
		id := old.Locks[i].ID()
		for len(news) > 0 && news[0].ID().compare(id) < 0 {
			now.Locks, news = append(now.Locks, news[0]), news[1:]
		}
		for len(gone) > 0 && gone[0].compare(id) < 0 {
			gone = gone[1:]
		}
		switch {
		case len(gone) > 0 && gone[0] == id:
		case len(news) > 0 && news[0].ID() == id:
			now.Locks, news = append(now.Locks, news[0]), news[1:]
		default:
			now.Locks = append(now.Locks, old.Locks[i])
		}
	}
	now.Locks = append(now.Locks, news...)
	return now
}

// Diff returns what happened from old, which the change was made from, to the
// later snapshot. It is [Diff] of the two, and looks at what changed alone.
func (c Change) Diff(old Snapshot) []Event {
	was, now := old, c.Snapshot
	was.Locks = nil
	gone, news := c.Gone, c.Locks
	for i := range old.Locks {
		id := old.Locks[i].ID()
		for len(news) > 0 && news[0].ID().compare(id) < 0 {
			news = news[1:]
		}
		if len(gone) > 0 && gone[0] == id {
			gone = gone[1:]
		} else if len(news) == 0 || news[0].ID() != id {
			continue
		}
		was.Locks = append(was.Locks, old.Locks[i])
	}
	return Diff(was, now)
}

// alike reports whether two looks at a lock say the same.
func alike(a, b *Lock) bool {
	return a.Format == b.Format && a.NoTTL == b.NoTTL && a.Confidence == b.Confidence && a.Kind == b.Kind && a.Fence == b.Fence &&
		a.Waiting == b.Waiting && a.Left == b.Left && a.Limit == b.Limit && slices.Equal(a.Why, b.Why) &&
		sameTime(a.Expires, b.Expires) && a.Renewals == b.Renewals && a.Renewed.Equal(b.Renewed) && a.Typical == b.Typical &&
		a.Grown == b.Grown && a.Overrun == b.Overrun && a.FreeFrom.Equal(b.FreeFrom) &&
		slices.EqualFunc(a.Holders, b.Holders, sameHolder) &&
		slices.EqualFunc(a.Waiters, b.Waiters, sameWaiter) &&
		slices.EqualFunc(a.Votes, b.Votes, sameVote)
}

func sameHolder(a, b Holder) bool {
	return a.ID == b.ID && a.Label == b.Label && a.Count == b.Count && a.Mode == b.Mode &&
		a.Since.Equal(b.Since) && a.Left.Equal(b.Left) && sameTime(a.Expires, b.Expires)
}

func sameWaiter(a, b Waiter) bool {
	return a.ID == b.ID && a.Mode == b.Mode && a.Since.Equal(b.Since) && a.Passed == b.Passed && sameTime(a.Expires, b.Expires)
}

func sameVote(a, b Vote) bool {
	return a.Node == b.Node && a.Token == b.Token && a.Silent == b.Silent && sameTime(a.Expires, b.Expires)
}

// sameTime reports whether two readings are of one deadline.
func sameTime(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= jitter
}
