package keyspace

import (
	"slices"
	"time"
)

// snapshotBuffer stores the snapshots of the last minutes: the oldest in full, and the
// deltas to the later ones. Most locks do not change between two snapshots, so deltas
// are small.
type snapshotBuffer struct {
	base   Snapshot // the oldest, without events
	deltas []Delta  // the later ones
	last   Snapshot // the newest, without events
	bytes  int64    // approximate size of the deltas
}

// add adds the next snapshot. When the buffer exceeds its limits by a tenth, add drops
// the snapshots that are older than keep or do not fit into memory. Dropping them one
// by one would cost as much each time.
func (b *snapshotBuffer) add(s Snapshot, keep time.Duration, memory int64) {
	s.Events, s.Notices = nil, nil
	if b.last.At.IsZero() {
		b.base, b.last = s, s
		return
	}
	d := DeltaOf(b.last, s)
	b.deltas = append(b.deltas, d)
	b.bytes += d.approxSize()
	b.last = s
	if s.At.Sub(b.base.At) > keep+keep/10 || b.bytes > memory+memory/10 {
		b.trim(s.At.Add(-keep), memory)
	}
}

// trim makes the last snapshot that is old enough the base, and keeps the deltas that
// fit into memory.
func (b *snapshotBuffer) trim(oldest time.Time, memory int64) {
	n := 0
	for n < len(b.deltas) && (b.bytes > memory || b.deltas[n].At.Before(oldest)) {
		b.bytes -= b.deltas[n].approxSize()
		n++
	}
	b.base = applyDeltas(b.base, b.deltas[:n])
	b.deltas = slices.Clone(b.deltas[n:]) // a copy, so that the dropped locks can be freed
}

// at returns the newest snapshot that is not later than t.
func (b *snapshotBuffer) at(t time.Time) (Snapshot, bool) {
	if b.last.At.IsZero() || t.Before(b.base.At) {
		return Snapshot{}, false
	}
	if !t.Before(b.last.At) {
		return b.last, true
	}
	n, _ := slices.BinarySearchFunc(b.deltas, t, func(c Delta, t time.Time) int {
		if c.At.After(t) {
			return +1
		}
		return -1
	})
	return applyDeltas(b.base, b.deltas[:n]), true
}

// span returns the times of the oldest and the newest snapshot.
func (b *snapshotBuffer) span() (oldest, newest time.Time) { return b.base.At, b.last.At }

// adjacent returns the time of the snapshot before (by < 0) or after t.
func (b *snapshotBuffer) adjacent(t time.Time, by int) (time.Time, bool) {
	if b.last.At.IsZero() {
		return time.Time{}, false
	}
	times := make([]time.Time, 0, len(b.deltas)+1)
	times = append(times, b.base.At)
	for _, f := range b.deltas {
		times = append(times, f.At)
	}
	i, exact := slices.BinarySearchFunc(times, t, time.Time.Compare)
	switch {
	case by < 0:
		i--
	case exact:
		i++
	}
	if i < 0 || i >= len(times) {
		return time.Time{}, false
	}
	return times[i], true
}

// Approximate bytes of a struct in memory, without the strings that it refers to.
const (
	deltaBytes  = 400
	lockBytes   = 350
	holderBytes = 150
)

func lockSize(l Lock) int64 {
	n := lockBytes + len(l.Key) + holderBytes*(len(l.Holders)+len(l.Waiters)+len(l.Votes))
	for _, h := range l.Holders {
		n += len(h.ID)
	}
	for _, w := range l.Waiters {
		n += len(w.ID)
	}
	return int64(n)
}

// approxSize estimates the memory of a delta in bytes.
func (d Delta) approxSize() int64 {
	n := int64(deltaBytes)
	for _, l := range d.Locks {
		n += lockSize(l)
	}
	return n
}

// applyDeltas returns the snapshot that results from applying deltas to old.
func applyDeltas(old Snapshot, deltas []Delta) Snapshot {
	if len(deltas) == 0 {
		return old
	}
	return MergeDeltas(deltas).Apply(old)
}
