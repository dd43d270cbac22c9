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
	frames []frame  // those after it
	last   Snapshot // the newest, without events
	bytes  int64    // of frames, roughly
}

// frame is what a picture has that the one before it has not.
type frame struct {
	snap    Snapshot // without locks and events
	changed []Lock
	gone    []ID
	bytes   int64
}

// add takes in the next picture, and drops those that are older than keep or do
// not fit into so much memory.
func (r *reel) add(s Snapshot, keep time.Duration, memory int64) {
	s.Events, s.Notices = nil, nil
	if r.last.At.IsZero() {
		r.base, r.last = s, s
		return
	}
	f := frameOf(r.last, s)
	r.frames = append(r.frames, f)
	r.bytes += f.bytes
	r.last = s
	for len(r.frames) > 0 && (s.At.Sub(r.base.At) > keep || r.bytes > memory) {
		r.base = r.frames[0].after(r.base)
		r.bytes -= r.frames[0].bytes
		r.frames[0] = frame{} // or its locks would stay as long as the array
		r.frames = r.frames[1:]
	}
}

// at returns the newest picture that is not later than t.
func (r *reel) at(t time.Time) (Snapshot, bool) {
	if r.last.At.IsZero() || t.Before(r.base.At) {
		return Snapshot{}, false
	}
	if !t.Before(r.last.At) {
		return r.last, true
	}
	n, _ := slices.BinarySearchFunc(r.frames, t, func(f frame, t time.Time) int {
		if f.snap.At.After(t) {
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
		times = append(times, f.snap.At)
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

// frameOf compares two pictures.
func frameOf(old, now Snapshot) frame {
	f := frame{snap: now}
	f.snap.Locks = nil
	before := byID(old.Locks)
	for _, l := range now.Locks {
		was, known := before[l.ID()]
		if !known || !same(was, l) {
			f.changed = append(f.changed, l)
			f.bytes += weight(l)
		}
		delete(before, l.ID())
	}
	for id := range before {
		f.gone = append(f.gone, id)
	}
	f.bytes += frameWeight
	return f
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

// after returns the picture that a frame makes of the one before it.
func (f frame) after(old Snapshot) Snapshot { return played(old, []frame{f}) }

// played returns the picture that some frames make of the one before them.
func played(old Snapshot, frames []frame) Snapshot {
	if len(frames) == 0 {
		return old
	}
	locks := byID(old.Locks)
	for _, f := range frames {
		for _, l := range f.changed {
			locks[l.ID()] = l
		}
		for _, id := range f.gone {
			delete(locks, id)
		}
	}
	s := frames[len(frames)-1].snap
	s.Locks = make([]Lock, 0, len(locks))
	for _, l := range locks {
		s.Locks = append(s.Locks, l)
	}
	slices.SortFunc(s.Locks, func(a, b Lock) int { return a.ID().compare(b.ID()) })
	return s
}

// same reports whether two looks at a lock show no difference.
func same(a, b Lock) bool {
	return a.Format == b.Format && a.Confidence == b.Confidence && a.Kind == b.Kind && a.Fence == b.Fence &&
		a.Expires.Equal(b.Expires) && a.Renewals == b.Renewals && a.Renewed.Equal(b.Renewed) && a.Typical == b.Typical &&
		a.Grown == b.Grown && a.Overrun == b.Overrun && a.FreeFrom.Equal(b.FreeFrom) &&
		slices.Equal(a.Holders, b.Holders) && slices.Equal(a.Waiters, b.Waiters) && slices.Equal(a.Votes, b.Votes)
}
