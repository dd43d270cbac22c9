package recording

import (
	"io"
	"time"

	"locktop/keyspace"
)

// Walk shows a visitor each frame that is later than from and not later than to, after the
// state at from, or the first one, and before the state at to. Instead of all frames of a
// segment load gets its index, if there is one; a nil load gets none.
func (r *Reader) Walk(from, to time.Time, v Visitor, load Load) error {
	r.stop = func() {}
	defer func() {
		r.stop()
		r.stop, r.skipped = nil, true // frames may be lost
	}()
	state, err := r.At(from, time.Time{})
	if err != nil {
		return err
	}
	v.State(state)
	for {
		if next, due := r.due(to); due && load != nil {
			if show := r.index(next, to, load); show != nil {
				show()
				r.open, r.skipped = next, true
				continue
			}
		}
		if !r.advance(to) {
			break
		}
		if err := r.segment.visit(v); err != nil {
			continue // advance reports it
		}
		r.shown = keyspace.Snapshot{}
	}
	state, err = r.At(to, time.Time{})
	if err == nil {
		v.State(state)
	}
	return err
}

// Load reads an index, in the background, and returns what shows it to a visitor; nil: it is malformed.
type Load func(index io.Reader) (show func())

// index returns what shows the index of a segment that ends before to; nil if there is none.
func (r *Reader) index(n int, to time.Time, load Load) func() {
	intact := r.skipped || endOfSegment(r.segment.end)
	if !intact || !r.alwaysOn || n+1 >= len(r.segments) || r.segments[n+1].start.After(to) {
		return nil
	}
	ahead := func(segment, before string) <-chan func() { // in the background
		index := make(chan func(), 1)
		go func() { index <- readIndex(segment, before, load) }()
		return index
	}
	index := r.ahead
	if r.aheadOf != n {
		index = ahead(r.segments[n].name, r.segments[r.open].name)
	}
	r.aheadOf, r.ahead = n+1, ahead(r.segments[n+1].name, r.segments[n].name)
	return <-index
}

// visit applies the next frame and shows it to a visitor.
func (r *segmentReader) visit(v Visitor) error {
	first, before := !r.started, r.at
	events, err := r.step(true)
	if err != nil {
		return err
	}
	if first { // a gap may be before it
		s := r.snapshot()
		s.Events, s.Notices = events, r.applied.Notices
		v.State(s)
		return nil
	}
	if ending := r.ending(events); len(ending) > 0 {
		v.Add(keyspace.Delta{Snapshot: keyspace.Snapshot{At: before, Locks: ending}})
	}
	v.Add(r.delta(events))
	return nil
}

// delta returns the frame that was applied last, with its events.
func (r *segmentReader) delta(events []keyspace.Event) keyspace.Delta {
	f := &r.applied
	d := keyspace.Delta{Snapshot: r.servers.snapshot(r.at, nil)}
	d.Events, d.Notices = events, f.Notices
	for i := range f.Locks {
		d.Locks = append(d.Locks, &f.Locks[i])
	}
	for _, at := range f.Gone {
		d.Gone = append(d.Gone, r.before[at].lock.ID())
	}
	return d
}

// ending returns the locks whose holds ended in the frame that was applied last, as they were before.
func (r *segmentReader) ending(events []keyspace.Event) (locks []*keyspace.Lock) {
	for i := range events {
		if !events[i].Kind.Ends() {
			continue
		}
		if at, known := findEntry(r.before, events[i].Lock.ID()); known {
			locks = append(locks, r.before[at].current())
		}
	}
	return locks
}
