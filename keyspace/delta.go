package keyspace

import (
	"maps"
	"slices"
	"time"
)

// Delta is the difference between a snapshot and the previous one. It is mostly much
// smaller than a snapshot. It is a value.
type Delta struct {
	Snapshot      // the later snapshot, but only with the locks that are new or changed
	Gone     []ID // locks of the earlier snapshot that are gone, in its order
}

// DeltaOf returns the difference from old to now. Two reads of one deadline that differ
// by some milliseconds are equal.
func DeltaOf(old, now Snapshot) Delta {
	d := Delta{Snapshot: now}
	d.Locks = nil
	for was, is := range Pairs(old.Locks, now.Locks) {
		switch {
		case is == nil:
			d.Gone = append(d.Gone, was.ID())
		case was == nil || was != is && !SameLock(was, is):
			d.Locks = append(d.Locks, is)
		}
	}
	return d
}

// MergeDeltas merges consecutive deltas, at least one, into one.
func MergeDeltas(deltas []Delta) Delta {
	d := deltas[len(deltas)-1]
	last := make(map[ID]*Lock) // gone: nil = gone
	for i := range deltas {
		for _, l := range deltas[i].Locks {
			last[l.ID()] = l
		}
		for _, id := range deltas[i].Gone {
			last[id] = nil
		}
	}
	d.Locks, d.Gone = nil, nil
	for _, id := range slices.SortedFunc(maps.Keys(last), ID.Compare) {
		if l := last[id]; l != nil {
			d.Locks = append(d.Locks, l)
		} else {
			d.Gone = append(d.Gone, id)
		}
	}
	return d
}

// Empty reports whether no lock was added, changed or removed.
func (d Delta) Empty() bool { return len(d.Locks) == 0 && len(d.Gone) == 0 }

// Ended returns the locks that are gone and have not moved to another node, without
// their node.
func (d Delta) Ended() []ID {
	if len(d.Gone) == 0 {
		return nil
	}
	here := make(map[ID]bool, len(d.Locks))
	for i := range d.Locks {
		here[d.Locks[i].ID().OnAnyNode()] = true
	}
	var all []ID
	for _, id := range d.Gone {
		if id = id.OnAnyNode(); !here[id] {
			all = append(all, id)
		}
	}
	return all
}

// Apply returns the later snapshot, made from the earlier one.
func (d Delta) Apply(old Snapshot) Snapshot {
	now := d.Snapshot
	if d.Empty() {
		now.Locks = old.Locks
		return now
	}
	now.Locks = make([]*Lock, 0, len(old.Locks)+len(d.Locks))
	gone := d.Gone
	for was, is := range Pairs(old.Locks, d.Locks) {
		if is != nil {
			now.Locks = append(now.Locks, is)
			continue
		}
		for len(gone) > 0 && gone[0].Compare(was.ID()) < 0 {
			gone = gone[1:]
		}
		if len(gone) == 0 || gone[0] != was.ID() {
			now.Locks = append(now.Locks, was)
		}
	}
	return now
}

// Diff returns the events from old, which the delta was made from, to the later snapshot; see [Diff].
func (d Delta) Diff(old Snapshot) []Event {
	differ := Differ{At: d.At, Watched: old.Complete && d.Complete, Slack: ExpirySlack, Jitter: DeadlineJitter}
	before := func(id ID) *Lock {
		if i, known := FindLock(old.Locks, id); known {
			return old.Locks[i]
		}
		return nil
	}
	for _, l := range d.Locks {
		was := before(l.ID())
		if differ.Held = 0; was != nil && len(was.Holders) == 1 && !was.Holders[0].Since.IsZero() {
			differ.Held = old.At.Sub(Later(was.Holders[0].Since, was.Renewed)) // under its deadline
		}
		switch {
		case len(l.Votes) > 0:
			differ.voted(old, was, l, nil)
		case was != nil:
			differ.Changed(*was, *l)
		default:
			differ.Added(*l)
		}
	}
	for _, id := range d.Gone {
		if was := before(id); was != nil && len(was.Votes) > 0 {
			differ.voted(old, was, nil, d.lost)
		} else if was != nil {
			differ.Removed(*was)
		}
	}
	return differ.Events
}

// Pairs calls yield with each lock of two lists in the order of a snapshot, as it was and as it
// is. One of them is nil if the lock is new or gone.
func Pairs(old, now []*Lock) func(yield func(was, is *Lock) bool) {
	return func(yield func(was, is *Lock) bool) {
		for len(old)+len(now) > 0 {
			var was, is *Lock
			order := 0
			switch {
			case len(old) == 0:
				order = +1
			case len(now) == 0:
				order = -1
			case old[0] != now[0]:
				order = CompareLocks(old[0], now[0])
			}
			if order <= 0 {
				was, old = old[0], old[1:]
			}
			if order >= 0 {
				is, now = now[0], now[1:]
			}
			if !yield(was, is) {
				return
			}
		}
	}
}

// FindLock returns the position of a lock in the locks of a snapshot.
func FindLock(locks []*Lock, id ID) (int, bool) {
	return slices.BinarySearchFunc(locks, id, func(l *Lock, id ID) int { return l.ID().Compare(id) })
}

// SameLock reports whether two reads of a lock are equal. Two reads of one deadline may
// differ by [DeadlineJitter].
func SameLock(a, b *Lock) bool {
	return a.Format == b.Format && a.NoTTL == b.NoTTL && a.NoExtend == b.NoExtend && a.Unchecked == b.Unchecked && a.Stamped == b.Stamped && a.OverdueIn == b.OverdueIn && a.Confidence == b.Confidence && a.Kind == b.Kind && a.Fence == b.Fence &&
		a.Waiting == b.Waiting && a.Remaining == b.Remaining && a.Limit == b.Limit && slices.Equal(a.Evidence, b.Evidence) && slices.Equal(a.Whole, b.Whole) &&
		sameTime(a.Expires, b.Expires) && a.TTLSet == b.TTLSet && a.Renewals == b.Renewals && a.Renewed.Equal(b.Renewed) && a.RenewedEvery == b.RenewedEvery && a.MedianHold == b.MedianHold && (a.Past == b.Past || a.Past != nil && b.Past != nil && *a.Past == *b.Past) &&
		a.ReentryStreak == b.ReentryStreak && a.ExpiryStreak == b.ExpiryStreak && a.UnheldSince.Equal(b.UnheldSince) &&
		a.AskedAt.Equal(b.AskedAt) && a.AskedPercent == b.AskedPercent &&
		slices.EqualFunc(a.Holders, b.Holders, sameHolder) &&
		slices.EqualFunc(a.Waiters, b.Waiters, sameWaiter) &&
		slices.EqualFunc(a.Votes, b.Votes, sameVote)
}

func sameHolder(a, b Holder) bool {
	return a.ID == b.ID && a.Label == b.Label && a.Depth == b.Depth && a.Mode == b.Mode &&
		a.Since.Equal(b.Since) && a.Late == b.Late && a.Seen.Equal(b.Seen) && a.Renewed.Equal(b.Renewed) && a.DisconnectedAt.Equal(b.DisconnectedAt) && a.ConnectedAt.Equal(b.ConnectedAt) && a.Addr == b.Addr && sameTime(a.Expires, b.Expires)
}

func sameWaiter(a, b Waiter) bool {
	return a.ID == b.ID && a.Mode == b.Mode && a.Since.Equal(b.Since) && a.Seen.Equal(b.Seen) && a.OvertakenBy == b.OvertakenBy && a.Polls == b.Polls && sameTime(a.Expires, b.Expires)
}

func sameVote(a, b Vote) bool {
	return a.Node == b.Node && a.Token == b.Token && a.Unreachable == b.Unreachable && a.Was == b.Was && a.Why == b.Why && sameTime(a.Expires, b.Expires)
}

// sameTime reports whether two reads can be of one deadline.
func sameTime(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= DeadlineJitter
}
