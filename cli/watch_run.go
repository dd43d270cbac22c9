package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/cli/connect"
	"locktop/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/tui"
)

// eventSource is where a watcher gets its events, for example an inspect.Watcher.
type eventSource interface {
	Next(context.Context) ([]keyspace.Event, []keyspace.Notice, error)
	Known() keyspace.Snapshot
}

// eventsOf starts to watch t. The caller must call end.
func eventsOf(t *connect.Target, s *selection) (source eventSource, end func()) {
	if t.Many {
		return &multiEventSource{fleet: s.watchOf(t), down: make(map[string]bool)}, func() {}
	}
	f := inspect.NewWatcher(s.scanner(t.Client, t.DB))
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
		found = append(found, picked.Findings[l.ID()]...)
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

// newsEvery is the time between two snapshots of several servers.
const newsEvery = 20 * time.Millisecond

// multiEventSource is the source of events of several servers.
type multiEventSource struct {
	fleet  tui.Source
	last   keyspace.Snapshot
	addrs  []string        // of the servers in the last snapshot
	down   map[string]bool // servers that did not answer
	silent bool            // no server answered
}

// Next waits newsEvery and returns the events and notices since the last call.
func (n *multiEventSource) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(newsEvery):
	}
	snap, err := n.fleet.Snapshot(ctx)
	if ctx.Err() != nil { // the servers did not have time to answer
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, n.onLost(err), err
	}
	n.last = snap
	return snap.Events, slices.Concat(n.onBack(), n.onMoved(snap.Nodes), n.nodeChanges(snap.Nodes), snap.Notices), nil
}

// Known returns the last snapshot.
func (n *multiEventSource) Known() keyspace.Snapshot { return n.last }

// onLost returns a notice once when no server answers.
func (n *multiEventSource) onLost(err error) []keyspace.Notice {
	if n.silent {
		return nil
	}
	n.silent = true
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerLost, Text: err.Error()}}
}

// onBack returns a notice when a server answers again after onLost.
func (n *multiEventSource) onBack() []keyspace.Notice {
	if !n.silent {
		return nil
	}
	n.silent = false
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerBack}}
}

// onMoved returns a notice if the list of servers has changed.
func (n *multiEventSource) onMoved(nodes []keyspace.Node) []keyspace.Notice {
	was := n.addrs
	n.addrs = nil
	for _, node := range nodes {
		n.addrs = append(n.addrs, node.Addr)
	}
	came, left := without(n.addrs, was), without(was, n.addrs)
	if len(was) == 0 || len(came)+len(left) == 0 {
		return nil
	}
	text := strings.Join(came, ", ") + " is looked at now, too"
	switch {
	case len(left) > 0 && len(came) > 0:
		text = fmt.Sprintf("%s has taken the place of %s", strings.Join(came, ", "), strings.Join(left, ", "))
	case len(left) > 0:
		text = strings.Join(left, ", ") + " is not looked at any more"
	}
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerFailover, Text: text}}
}

// nodeChanges returns a notice for each server that stops answering while others
// answer, and for each server that answers again.
func (n *multiEventSource) nodeChanges(nodes []keyspace.Node) []keyspace.Notice {
	var all []keyspace.Notice
	for _, node := range nodes {
		if node.Up == !n.down[node.Addr] {
			continue
		}
		n.down[node.Addr] = !node.Up
		text := node.Addr + " answers again"
		if !node.Up {
			text = node.Addr + " does not answer: " + node.Error
		}
		all = append(all, keyspace.Notice{At: time.Now(), Kind: keyspace.WatchModeChanged, Node: node.Addr, Text: text})
	}
	return all
}

// without returns the elements of all that are not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}
