package cli

import (
	"context"
	"fmt"
	"time"

	"locktop/keyspace"
)

// happenings is where a watcher learns what happens; a keyspace.Follower is one.
type happenings interface {
	Next(context.Context) ([]keyspace.Event, []keyspace.Notice, error)
}

// happenings is where it is learnt what happens on t, until end is called.
func (t *target) happenings(s *selection) (source happenings, end func()) {
	if t.many {
		return &fleetNews{fleet: t.follow(s), down: make(map[string]bool)}, func() {}
	}
	f := keyspace.NewFollower(s.scanner(t.rdb, t.db))
	return f, f.Close
}

// watcher prints what happens.
type watcher struct {
	source happenings
	wants  func(keyspace.Event, []keyspace.Finding) bool
	print  func(keyspace.Event) error
	notes  notes
	title  string
	lost   time.Time // since when the server has not answered
}

// run watches until ctx ends, which is no error. A server that goes away, or
// lets us in no longer, is waited for.
func (w *watcher) run(ctx context.Context) error {
	for {
		events, notices, _ := w.source.Next(ctx) // what is wrong, notices tell
		if ctx.Err() != nil {
			return nil
		}
		for _, n := range notices {
			w.note(n)
		}
		for _, e := range events {
			if !w.wants(e, findingsAbout(e)) {
				continue
			}
			if err := w.print(e); err != nil {
				return fmt.Errorf("print events: %w", err)
			}
		}
	}
}

// note says in one line what has become of the server.
func (w *watcher) note(n keyspace.Notice) {
	switch n.Kind {
	case keyspace.ServerLost:
		w.lost = n.At
		w.notes.note("lost %s: %s; trying again until it is back", w.title, n.Text)
	case keyspace.ServerBack:
		also := ""
		if n.Text != "" {
			also = ": " + n.Text
		}
		w.notes.note("back on %s after %s%s", w.title, span(n.At.Sub(w.lost)), also)
	default:
		w.notes.note("%s: %s", w.title, n.Text)
	}
}

// findingsAbout is what is wrong with the lock of an event.
func findingsAbout(e keyspace.Event) []keyspace.Finding {
	return keyspace.Findings(keyspace.Snapshot{At: e.At, Locks: []keyspace.Lock{e.Lock}})
}
