package keyspace

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"locktop/keyspace/internal/cache"
)

// History is the past of the locks since the watch began: the statistics of the holds of
// each lock and, for ten minutes, whole snapshots. Its memory is bounded; the locks
// without events for the longest time are forgotten first.
//
// Its input are the snapshots of a Watcher or of a recording, in order. The zero value
// is ready to use. It is for one goroutine at a time.
type History struct {
	Memory int64 // approximate bytes of the snapshots; 0 = 64 MiB

	records   cache.Map[ID, *record]
	snapshots snapshotBuffer
}

// Bounds of a History.
const (
	maxSnapshotAge  = 10 * time.Minute
	defaultMemory   = 64 << 20
	maxRecordOwners = 32 // latest owners of a lock
)

// Add adds the next snapshot and its events. d is its difference to the snapshot of time
// since. If another snapshot was added last, Add computes the difference itself.
func (h *History) Add(s Snapshot, d Delta, since time.Time) {
	for _, e := range s.Events {
		h.learn(e)
	}
	if !since.Equal(h.snapshots.last.At) {
		d = DeltaOf(h.snapshots.last, s)
	}
	h.snapshots.add(s, d, maxSnapshotAge, cmp.Or(h.Memory, defaultMemory))
}

// At returns the newest snapshot that is not later than t, without events. It is false
// if none is that old.
func (h *History) At(t time.Time) (Snapshot, bool) { return h.snapshots.at(t) }

// Span returns the times of the oldest and the newest snapshot; both are zero without
// snapshots.
func (h *History) Span() (oldest, newest time.Time) { return h.snapshots.base.At, h.snapshots.last.At }

// Of returns the record of a lock, on whichever server the lock was. It is a copy, and
// empty for an unknown lock.
func (h *History) Of(id ID) Record {
	r, known := h.records.Get(id.OnAnyNode())
	if !known {
		return Record{}
	}
	c := r.Record
	c.Owners = slices.Clone(r.Owners)
	c.Ended = maps.Clone(r.Ended)
	return c
}

// Record is the known past of one lock.
type Record struct {
	Owners  []Owner           // the most recent first; the latest 32
	Ended   map[EventKind]int // number of ended holds by kind
	Renewed int               // number of renewals

	HoldTimes Histogram // of finished holds with a known begin
	HandOffs  Histogram // from the end of a hold to the begin of the next
}

// Owner is a holder name with its statistics.
type Owner struct {
	Name  string // Holder.Name
	Holds int    // number of finished holds
}

// record is a Record that is being filled.
type record struct {
	Record
	freed time.Time // end of the last hold; zero = unknown
}

// learn records one event.
func (h *History) learn(e Event) {
	r := h.records.GetOrAdd(e.Lock.ID().OnAnyNode(), func() *record {
		return &record{Record: Record{Ended: make(map[EventKind]int)}}
	})
	switch {
	case e.Kind == Acquired:
		r.owner(e.Holder.Name())
		if !r.freed.IsZero() && len(e.Lock.Holders) <= 1 { // a holder that joins others has no hand-off time
			r.HandOffs.Add(max(0, e.At.Sub(r.freed)))
		}
	case e.Kind.Ends():
		r.Ended[e.Kind]++
		r.owner(e.Holder.Name()).Holds++
		if e.Held > 0 {
			r.HoldTimes.Add(e.Held)
		}
		r.freed = e.Ended()
		if e.Kind == Vanished || e.Kind == Lost {
			r.freed = time.Time{}
		}
	case e.Kind == Renewed:
		r.Renewed++
	}
}

// owner moves the entry of an owner to the front and returns it. A new owner replaces
// the one seen least recently.
func (r *record) owner(name string) *Owner {
	i := slices.IndexFunc(r.Owners, func(o Owner) bool { return o.Name == name })
	o := Owner{Name: name}
	switch {
	case i >= 0:
		o = r.Owners[i]
		r.Owners = slices.Delete(r.Owners, i, i+1)
	case len(r.Owners) >= maxRecordOwners:
		r.Owners = r.Owners[:maxRecordOwners-1]
	}
	r.Owners = slices.Insert(r.Owners, 0, o)
	return &r.Owners[0]
}

// Histogram counts durations in buckets of doubling width: below 1 ms, below 2 ms,
// below 4 ms, … and a last one without an upper bound. It is a value of a few hundred
// bytes, because each lock has one; a histogram with more precision would take a
// thousand times as much.
type Histogram struct {
	Buckets [24]uint32 // the last one begins at more than an hour
	Total   uint64
	Longest time.Duration
}

// Add counts one duration; a negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	h.Buckets[min(bits.Len64(uint64(max(0, d.Milliseconds()))), len(h.Buckets)-1)]++
	h.Total++
	h.Longest = max(h.Longest, d)
}

// upperBound returns the exclusive upper bound of a bucket; 0 for the last
// bucket, which has none.
func upperBound(bucket int) time.Duration {
	if bucket >= len(Histogram{}.Buckets)-1 {
		return 0
	}
	return time.Duration(1<<bucket) * time.Millisecond
}

// Quantile returns a duration that the share q of all durations does not exceed. It is
// at most twice too long. It is 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(h.Total)+0.5))
	seen := uint64(0)
	for i, n := range h.Buckets {
		seen += uint64(n)
		if seen >= rank && upperBound(i) > 0 {
			return min(upperBound(i), h.Longest)
		}
	}
	return h.Longest
}

// snapshotBuffer stores the snapshots of the last minutes: the oldest in full, and the
// deltas to the later ones. Most locks do not change between two snapshots, so deltas
// are small.
type snapshotBuffer struct {
	base   Snapshot // the oldest, without events
	deltas []Delta  // the later ones
	last   Snapshot // the newest, without events
	bytes  int64    // approximate size of the deltas

	dropping chan Snapshot // will have the next base, which is made beside; nil = there is none
	dropped  int           // number of deltas in that base
}

// add adds the next snapshot, which differs from the last one by d. When the buffer exceeds
// keep by a tenth, add drops the snapshots that are older than keep. When the buffer exceeds three
// quarters of memory, add drops a third of it. With 200,000 locks, to drop takes 100 ms: it happens
// beside, and add waits for it only if the buffer would exceed memory.
func (b *snapshotBuffer) add(s Snapshot, d Delta, keep time.Duration, memory int64) {
	s.Events, s.Notices, d.Events, d.Notices = nil, nil, nil, nil
	if b.last.At.IsZero() {
		b.base, b.last = s, s
		return
	}
	b.deltas = append(b.deltas, d)
	b.bytes += d.approxSize()
	b.last = s
	select {
	case base := <-b.dropping:
		b.drop(base)
	default:
	}
	switch {
	case b.bytes > memory-memory/4:
		b.trim(s.At.Add(-keep), memory/2)
	case s.At.Sub(b.base.At) > keep+keep/10:
		b.trim(s.At.Add(-keep), memory)
	}
	for b.bytes > memory && b.dropping != nil {
		b.drop(<-b.dropping)
		b.trim(s.At.Add(-keep), memory/2)
	}
}

// trim begins to make the last snapshot that is old enough the base, so that the later deltas fit
// into memory, unless that has begun.
func (b *snapshotBuffer) trim(oldest time.Time, memory int64) {
	n, bytes := 0, b.bytes
	for n < len(b.deltas) && (bytes > memory || b.deltas[n].At.Before(oldest)) {
		bytes -= b.deltas[n].approxSize()
		n++
	}
	if n == 0 || b.dropping != nil {
		return
	}
	base, deltas, made := b.base, b.deltas[:n], make(chan Snapshot, 1)
	b.dropping, b.dropped = made, n
	go func() { made <- applyDeltas(base, deltas) }()
}

// drop makes a snapshot the base, and drops the deltas that are in it.
func (b *snapshotBuffer) drop(base Snapshot) {
	for _, d := range b.deltas[:b.dropped] {
		b.bytes -= d.approxSize()
	}
	b.base, b.dropping = base, nil
	b.deltas = slices.Clone(b.deltas[b.dropped:]) // a copy, so that the dropped locks can be freed
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

// Approximate bytes of a struct in memory, without the strings that it refers to.
const (
	deltaBytes  = 400
	lockBytes   = 420
	holderBytes = 200
)

// approxSize estimates the memory of a delta in bytes.
func (d Delta) approxSize() int64 {
	n := deltaBytes
	for _, l := range d.Locks {
		n += lockBytes + len(l.Key) + holderBytes*(len(l.Holders)+len(l.Waiters)+len(l.Votes))
		for _, h := range l.Holders {
			n += len(h.ID)
		}
		for _, w := range l.Waiters {
			n += len(w.ID)
		}
	}
	return int64(n)
}

// applyDeltas returns the snapshot that results from applying deltas to old.
func applyDeltas(old Snapshot, deltas []Delta) Snapshot {
	if len(deltas) == 0 {
		return old
	}
	return MergeDeltas(deltas).Apply(old)
}
