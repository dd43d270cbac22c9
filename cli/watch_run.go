package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// eventSource is where a watcher gets its events, for example an inspect.Watcher.
type eventSource interface {
	Next(context.Context) ([]keyspace.Event, []keyspace.Notice, error)
	Known() keyspace.Snapshot
}

// events starts to watch t. The caller must call end.
func (t *target) events(s *selection) (source eventSource, end func()) {
	if t.many {
		return &multiEventSource{fleet: t.follow(s), down: make(map[string]bool)}, func() {}
	}
	f := inspect.NewWatcher(s.scanner(t.rdb, t.db))
	return f, f.Close
}

// findingsInterval is the time between two checks for findings without an event.
const findingsInterval = time.Second

// watcher prints events and findings.
type watcher struct {
	source eventSource
	wants  watchOptions
	picks  *selection
	teller eventPrinter
	notes  messages
	title  string
	lost   time.Time           // start of the time without an answer
	told   map[findingKey]bool // current findings that were printed
	looked time.Time           // time of the last check by warn
	warned bool                // warn has printed its warning
	asked  time.Time           // time of the last check by reportFindings
}

// findingKey identifies a finding without the numbers in its text.
type findingKey struct {
	id     string
	lock   keyspace.ID
	server string
}

func findingKeyOf(f keyspace.Finding) findingKey { return findingKey{f.ID, f.Lock, f.Server} }

// run watches until ctx ends, which is not an error. It waits for a server that goes
// away or rejects the user.
func (w *watcher) run(ctx context.Context) error {
	for {
		events, notices, _ := w.source.Next(ctx) // notices report the error
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

// printEvents prints events. In text, each has the findings of its lock.
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

// reportFindings prints each finding once that appears without an event.
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

// lacks returns the exitError for a watch that ends while a server does not answer,
// or nil.
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

// warn reports once what locktop cannot see on servers that answer.
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

// note prints a notice about a server in one line.
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

// findingsAbout returns the findings of an event's lock.
func findingsAbout(e keyspace.Event) []keyspace.Finding {
	return keyspace.Findings(keyspace.Snapshot{At: e.At, Locks: []keyspace.Lock{e.Lock}})
}
