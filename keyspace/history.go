package keyspace

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// History has the snapshots of the last ten minutes: the oldest in full, and the deltas to the later
// ones. Most locks do not change between two snapshots, so deltas are small. Its memory is bounded.
//
// Its input are the snapshots of a Watcher or of a recording, in order. The zero value
// is ready to use. It is for one goroutine at a time.
type History struct {
	Memory int64 // approximate bytes of the snapshots; 0 = 64 MiB

	base   Snapshot // the oldest, without events
	deltas []Delta  // the later ones
	last   Snapshot // the newest, without events
	bytes  int64    // approximate size of the deltas

	dropping chan Snapshot // will have the next base, which is made beside; nil = there is none
	dropped  int           // number of deltas in that base
}

// Bounds of a History.
const (
	maxSnapshotAge = 10 * time.Minute
	defaultMemory  = 64 << 20
)

// Span returns the times of the oldest and the newest snapshot; both are zero without
// snapshots.
func (h *History) Span() (oldest, newest time.Time) { return h.base.At, h.last.At }

// Add adds the next snapshot. d is its difference to the snapshot of time since; if another one was
// added last, Add computes the difference itself. When the history exceeds ten minutes by a tenth,
// Add drops the snapshots that are older. When it exceeds three quarters of its memory, Add drops a
// third of it. With 200,000 locks, to drop takes 100 ms: it happens beside, and Add waits for it only
// if the history would exceed its memory.
func (h *History) Add(s Snapshot, d Delta, since time.Time) {
	if !since.Equal(h.last.At) {
		d = DeltaOf(h.last, s)
	}
	s.Events, s.Notices, d.Events, d.Notices = nil, nil, nil, nil
	if h.last.At.IsZero() {
		h.base, h.last = s, s
		return
	}
	h.deltas = append(h.deltas, d)
	h.bytes += d.approxSize()
	h.last = s
	select {
	case base := <-h.dropping:
		h.drop(base)
	default:
	}
	oldest, memory := s.At.Add(-maxSnapshotAge), cmp.Or(h.Memory, defaultMemory)
	switch {
	case h.bytes > memory-memory/4:
		h.trim(oldest, memory/2)
	case s.At.Sub(h.base.At) > maxSnapshotAge+maxSnapshotAge/10:
		h.trim(oldest, memory)
	}
	for h.bytes > memory && h.dropping != nil {
		h.drop(<-h.dropping)
		h.trim(oldest, memory/2)
	}
}

// trim begins to make the last snapshot that is old enough the base, so that the later deltas fit
// into memory, unless that has begun.
func (h *History) trim(oldest time.Time, memory int64) {
	n, bytes := 0, h.bytes
	for n < len(h.deltas) && (bytes > memory || h.deltas[n].At.Before(oldest)) {
		bytes -= h.deltas[n].approxSize()
		n++
	}
	if n == 0 || h.dropping != nil {
		return
	}
	base, deltas, made := h.base, h.deltas[:n], make(chan Snapshot, 1)
	h.dropping, h.dropped = made, n
	go func() { made <- applyDeltas(base, deltas) }()
}

// drop makes a snapshot the base, and drops the deltas that are in it.
func (h *History) drop(base Snapshot) {
	for _, d := range h.deltas[:h.dropped] {
		h.bytes -= d.approxSize()
	}
	h.base, h.dropping = base, nil
	h.deltas = slices.Clone(h.deltas[h.dropped:]) // a copy, so that the dropped locks can be freed
}

// At returns the newest snapshot that is not later than t, without events. It is false
// if none is that old.
func (h *History) At(t time.Time) (Snapshot, bool) {
	if h.last.At.IsZero() || t.Before(h.base.At) {
		return Snapshot{}, false
	}
	if !t.Before(h.last.At) {
		return h.last, true
	}
	n := sort.Search(len(h.deltas), func(i int) bool { return h.deltas[i].At.After(t) })
	return applyDeltas(h.base, h.deltas[:n]), true
}

// deltaBytes is the approximate memory of a delta without locks.
const deltaBytes = 400

// approxSize estimates the memory of a delta in bytes.
func (d Delta) approxSize() int64 {
	n := deltaBytes
	for _, l := range d.Locks {
		n += l.ApproxSize()
	}
	return int64(n)
}

// ApproxSize estimates the memory of a lock in bytes. A compressed holder needs almost none in a file.
func (l *Lock) ApproxSize() int {
	const lock, part = 424, 224
	n := lock + len(l.Key) + part*(len(l.Holders)+len(l.Waiters)+len(l.Votes))
	for i := range l.Holders {
		n += len(l.Holders[i].ID) + len(l.Holders[i].Label)
	}
	for i := range l.Waiters {
		n += len(l.Waiters[i].ID)
	}
	for _, text := range l.Evidence {
		n += part + len(text)
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
