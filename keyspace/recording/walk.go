package recording

import (
	"time"

	"locktop/keyspace"
)

// Walk calls visit for each frame that is later than from and not later than to, in order,
// after a frame with the state at from, or with the first one.
//
// A frame has the locks that are new or changed, but not those that were only renewed: a
// frame before the end of a hold has its lock with all renewals, and the last one has all
// locks.
func (r *Reader) Walk(from, to time.Time, visit func(keyspace.Delta)) error {
	state, err := r.At(from, time.Time{})
	if err != nil {
		return err
	}
	visit(keyspace.Delta{Snapshot: state})
	for was := r.segment; r.advance(to); was = r.segment {
		before := r.segment.at
		events, err := r.segment.step(true)
		if err != nil {
			continue // advance reports it
		}
		r.shown = keyspace.Snapshot{}
		d := r.segment.delta(events)
		if r.segment != was { // a gap may be between two segments
			old, now := was.snapshot(), r.segment.snapshot()
			now.Events, now.Notices = d.Events, d.Notices
			d = keyspace.DeltaOf(old, now)
		} else if ending := r.segment.ending(events); len(ending) > 0 {
			visit(keyspace.Delta{Snapshot: keyspace.Snapshot{At: before, Locks: ending}})
		}
		visit(d)
	}
	r.asked = to
	visit(keyspace.Delta{Snapshot: r.segment.snapshot()})
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

// ending returns the locks whose holds ended in the frame that was applied last, as they were
// before.
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
