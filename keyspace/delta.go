package keyspace

import (
	"maps"
	"slices"
	"time"
)

// Delta is what a snapshot says that the one before it does not: enough to
// make the one from the other, and mostly much less. It is a value like they.
type Delta struct {
	Snapshot      // the later one, but only with the locks that came or changed
	Gone     []ID // of the earlier one, in its order
}

// DeltaOf returns the change from one snapshot to the next. Two readings of one
// deadline that differ by some milliseconds are no change.
func DeltaOf(old, now Snapshot) Delta {
	d := Delta{Snapshot: now}
	d.Locks = nil
	if n := len(now.Locks); n > 0 && n == len(old.Locks) && &now.Locks[0] == &old.Locks[0] {
		return d // they share what nobody changes
	}
	was := old.Locks
	for i := range now.Locks {
		l := &now.Locks[i]
		id := l.ID()
		for len(was) > 0 && was[0].ID().compare(id) < 0 {
			d.Gone = append(d.Gone, was[0].ID())
			was = was[1:]
		}
		if len(was) > 0 && was[0].ID() == id {
			same := sameLock(&was[0], l)
			was = was[1:]
			if same {
				continue
			}
		}
		d.Locks = append(d.Locks, *l)
	}
	for i := range was {
		d.Gone = append(d.Gone, was[i].ID())
	}
	return d
}

// MergeDeltas makes one change of several that follow each other, at least one.
func MergeDeltas(deltas []Delta) Delta {
	d := deltas[len(deltas)-1]
	last := make(map[ID]*Lock) // nil: gone
	for i := range deltas {
		for j := range deltas[i].Locks {
			l := &deltas[i].Locks[j]
			last[l.ID()] = l
		}
		for _, id := range deltas[i].Gone {
			last[id] = nil
		}
	}
	d.Locks, d.Gone = nil, nil
	for _, id := range slices.SortedFunc(maps.Keys(last), ID.compare) {
		if l := last[id]; l != nil {
			d.Locks = append(d.Locks, *l)
		} else {
			d.Gone = append(d.Gone, id)
		}
	}
	return d
}

// Empty reports whether no lock came, changed or went.
func (d Delta) Empty() bool { return len(d.Locks) == 0 && len(d.Gone) == 0 }

// Apply returns the later snapshot, made from the earlier one.
func (d Delta) Apply(old Snapshot) Snapshot {
	now := d.Snapshot
	if d.Empty() {
		now.Locks = old.Locks
		return now
	}
	now.Locks = make([]Lock, 0, len(old.Locks)+len(d.Locks))
	gone, news := d.Gone, d.Locks
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
func (d Delta) Diff(old Snapshot) []Event {
	was, now := old, d.Snapshot
	was.Locks = nil
	gone, news := d.Gone, d.Locks
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

// sameLock reports whether two looks at a lock say the same.
func sameLock(a, b *Lock) bool {
	return a.Format == b.Format && a.NoTTL == b.NoTTL && a.OverdueIn == b.OverdueIn && a.Confidence == b.Confidence && a.Kind == b.Kind && a.Fence == b.Fence &&
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
