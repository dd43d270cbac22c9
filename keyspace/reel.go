package keyspace

import (
	"slices"
	"time"
)

// reel is the pictures of the last while: the oldest in full, and what has
// changed from each to the next. Most locks do not change from one picture to
// the next, so that this takes little.
type reel struct {
	base   Snapshot // the oldest, without events
	frames []Delta  // those after it
	last   Snapshot // the newest, without events
	bytes  int64    // of frames, roughly
}

// add takes in the next picture. Once they have grown by a tenth over what they
// should be, it drops those that are older than keep or do not fit into so much
// memory: to drop them one by one would cost as much each time.
func (r *reel) add(s Snapshot, keep time.Duration, memory int64) {
	s.Events, s.Notices = nil, nil
	if r.last.At.IsZero() {
		r.base, r.last = s, s
		return
	}
	c := DeltaOf(r.last, s)
	r.frames = append(r.frames, c)
	r.bytes += c.weight()
	r.last = s
	if s.At.Sub(r.base.At) > keep+keep/10 || r.bytes > memory+memory/10 {
		r.drop(s.At.Add(-keep), memory)
	}
}

// drop makes the base the last picture that is old enough, and leaves frames
// that fit into the memory.
func (r *reel) drop(oldest time.Time, memory int64) {
	n := 0
	for n < len(r.frames) && (r.bytes > memory || r.frames[n].At.Before(oldest)) {
		r.bytes -= r.frames[n].weight()
		n++
	}
	r.base = played(r.base, r.frames[:n])
	r.frames = slices.Clone(r.frames[n:]) // or their locks would stay as long as the array
}

// at returns the newest picture that is not later than t.
func (r *reel) at(t time.Time) (Snapshot, bool) {
	if r.last.At.IsZero() || t.Before(r.base.At) {
		return Snapshot{}, false
	}
	if !t.Before(r.last.At) {
		return r.last, true
	}
	n, _ := slices.BinarySearchFunc(r.frames, t, func(c Delta, t time.Time) int {
		if c.At.After(t) {
			return +1
		}
		return -1
	})
	return played(r.base, r.frames[:n]), true
}

// span returns the times of the oldest and the newest picture.
func (r *reel) span() (oldest, newest time.Time) { return r.base.At, r.last.At }

// step returns the time of the picture next to t, before or after it.
func (r *reel) step(t time.Time, by int) (time.Time, bool) {
	if r.last.At.IsZero() {
		return time.Time{}, false
	}
	times := make([]time.Time, 0, len(r.frames)+1)
	times = append(times, r.base.At)
	for _, f := range r.frames {
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

// What things weigh in memory, roughly: the structs themselves, and the bytes
// that they hold on to.
const (
	frameWeight  = 400
	lockWeight   = 350
	holderWeight = 150
)

func weight(l Lock) int64 {
	n := lockWeight + len(l.Key) + holderWeight*(len(l.Holders)+len(l.Waiters)+len(l.Votes))
	for _, h := range l.Holders {
		n += len(h.ID)
	}
	for _, w := range l.Waiters {
		n += len(w.ID)
	}
	return int64(n)
}

// weight is what a change holds on to.
func (d Delta) weight() int64 {
	n := int64(frameWeight)
	for _, l := range d.Locks {
		n += weight(l)
	}
	return n
}

// played returns the picture that some changes make of the one before them.
func played(old Snapshot, changes []Delta) Snapshot {
	if len(changes) == 0 {
		return old
	}
	return MergeDeltas(changes).Apply(old)
}
