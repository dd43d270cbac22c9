package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// eventSource is where a watcher learns what happens; a keyspace.Watcher is one.
type eventSource interface {
	Next(context.Context) ([]keyspace.Event, []keyspace.Notice, error)
	Known() keyspace.Snapshot
}

// events is where it is learnt what happens on t, until end is called.
func (t *target) events(s *selection) (source eventSource, end func()) {
	if t.many {
		return &multiEventSource{fleet: t.follow(s), down: make(map[string]bool)}, func() {}
	}
	f := keyspace.NewWatcher(s.scanner(t.rdb, t.db))
	return f, f.Close
}

// findingsInterval is the time between two looks at what time alone makes wrong.
const findingsInterval = time.Second

// watcher prints what happens.
type watcher struct {
	source eventSource
	wants  watchOptions
	picks  *selection
	teller eventPrinter
	notes  messages
	title  string
	lost   time.Time           // since when the server has not answered
	told   map[findingKey]bool // what is wrong, and was said
	looked time.Time           // when it was last looked what cannot be seen
	warned bool                // of that
	asked  time.Time           // when it was last asked what is wrong
}

// findingKey tells findings apart, whatever figures are in their texts.
type findingKey struct {
	id     string
	lock   keyspace.ID
	server string
}

func findingKeyOf(f keyspace.Finding) findingKey { return findingKey{f.ID, f.Lock, f.Server} }

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
		if err := w.printEvents(events); err != nil {
			return fmt.Errorf("print events: %w", err)
		}
		w.warn()
		if err := w.reportFindings(); err != nil {
			return fmt.Errorf("print findings: %w", err)
		}
	}
}

// printEvents prints events. A sentence says what is wrong with its lock, too.
func (w *watcher) printEvents(events []keyspace.Event) error {
	for _, e := range events {
		found := findingsAbout(e)
		if !w.wants.event(e) || !w.picks.matches(e.Lock, found) {
			continue
		}
		if err := w.teller.event(e, found); err != nil {
			return err
		}
		if w.teller.json || e.Kind.Ends() {
			continue
		}
		for _, f := range found {
			w.told[findingKeyOf(f)] = true
		}
	}
	return nil
}

// reportFindings says, once, what has become wrong with time alone, or with the
// servers.
func (w *watcher) reportFindings() error {
	if !w.wants.findings() || time.Since(w.asked) < findingsInterval {
		return nil
	}
	w.asked = time.Now()
	known := w.source.Known()
	picked := w.picks.filter(known)
	var found []keyspace.Finding
	for _, l := range picked.Locks {
		found = append(found, picked.findings[l.ID()]...)
	}
	still := make(map[findingKey]bool)
	for _, f := range append(found, keyspace.ServerFindings(known)...) {
		c := findingKeyOf(f)
		still[c] = true
		if w.told[c] {
			continue
		}
		if err := w.teller.finding(f, known.At); err != nil {
			return err
		}
	}
	w.told = still
	return nil
}

// lacks returns the fault of a watch that ends while a server does not answer, nil
// if all do.
func (w *watcher) lacks() error {
	text := missing(w.source.Known().Nodes)
	if !w.lost.IsZero() {
		text = fmt.Sprintf("%s has not answered for %s", w.title, humanize.Duration(time.Since(w.lost)))
	}
	if text == "" {
		return nil
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("incomplete: %s", text)}
}

// warn says, once, what cannot be seen of servers that answer.
func (w *watcher) warn() {
	if w.warned || time.Since(w.looked) < findingsInterval {
		return
	}
	w.looked = time.Now()
	known := w.source.Known()
	if w.warned = known.Complete && len(known.Problems) > 0; !w.warned {
		return
	}
	w.notes.warning("%s", strings.Join(known.Problems, "; "))
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
		w.notes.note("back on %s after %s%s", w.title, humanize.Duration(n.At.Sub(w.lost)), also)
		w.lost = time.Time{}
	default:
		w.notes.note("%s: %s", w.title, n.Text)
	}
}

// findingsAbout is what is wrong with the lock of an event.
func findingsAbout(e keyspace.Event) []keyspace.Finding {
	return keyspace.Findings(keyspace.Snapshot{At: e.At, Locks: []keyspace.Lock{e.Lock}})
}
