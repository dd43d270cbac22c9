package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/tui"
	"locktop/tui/widget"
)

// watchOptions configures a run of watch.
type watchOptions struct {
	json, plain bool
	events      []string
	duration    time.Duration
}

func (o *watchOptions) flags() *pflag.FlagSet {
	set := flagSection("Output")
	set.BoolVar(&o.json, "json", false, "print one JSON object per line; errors and notes are JSON, too")
	set.BoolVar(&o.plain, "plain", false, "print one sentence per line, for screen readers and grep (the default)")
	set.StringSliceVar(&o.events, "events", nil, "only events of these `kinds`: "+strings.Join(eventNames(), ", "))
	set.DurationVar(&o.duration, "for", 0, "stop after this `time` (default: never)")
	return set
}

func (p *program) watchCommand() *cobra.Command {
	var o watchOptions
	return p.readCommand(&cobra.Command{
		Use:   "watch [flags]",
		Short: "Print changes of locks as they happen",
		Long: `Prints every change of a lock, one event per line, until it is interrupted. If a lock
changes several times within a few milliseconds, only the last change may be printed.

Redis 6 and later notify locktop of changed keys within milliseconds. Without that,
locktop reads the locks 10 times per second and may miss a shorter hold; locktop
doctor says which applies, and why. The first lock under a new prefix or of a new
shape such as RANDOM:lock is found by a scan of all keys, about once per second, and less
often with many keys. It is missed if it ends before that; a note says so while the first
scan goes on. If the connection breaks, locktop reconnects; if the
server does not answer at the end of --for, the exit code is 1.

A lock is reported as stolen only with proof: another holder has the same deadline,
or the library publishes its releases and has published none. With other libraries, a
DEL and a SET by another client look like a release and the next acquire, and are
printed as these: "released …, or deleted".

A finding about a lock or a risk for all locks is printed once, with advice.`,
		Example: `  locktop watch --match 'lock:orders:*'
  locktop watch --events expired,deleted,stolen
  locktop watch --events finding --json
  locktop watch --for 10s --json | jq -r .event | sort | uniq -c`,
		Args: noArguments,
	}, o.check, func(ctx context.Context, r *reading, _ []string) error {
		return p.watch(ctx, r.target, &r.selection, o)
	}, o.flags())
}

func (p output) watch(ctx context.Context, t *connect.Target, s *selection, o watchOptions) error {
	watchCtx, stop := context.WithTimeout(ctx, cmp.Or(o.duration, never))
	defer stop()
	var source eventSource
	if t.Many {
		source = &multiEventSource{fleet: s.watchOf(t, s.optionsOf(t)), down: make(map[string]bool)}
	} else {
		one := inspect.NewWatcher(s.scanner(t.Client, t.DB))
		defer one.Close()
		source = one
	}
	w := &watcher{
		source:    source,
		options:   o,
		selection: s,
		output:    p,
		title:     t.Title,
		several:   t.Many,
		reported:  make(map[findingKey]bool),
	}
	if err := w.run(watchCtx); err != nil {
		return err
	}
	if ctx.Err() != nil { // not watchCtx: the end of --for is not an error
		return ctx.Err()
	}
	return w.missing()
}

// prints reports whether events of a kind are printed.
func (o *watchOptions) prints(kind string) bool {
	return len(o.events) == 0 || slices.Contains(o.events, kind)
}

func (o *watchOptions) check() error {
	for _, name := range o.events {
		if !slices.Contains(eventNames(), name) {
			return usageErrorf("there are "+strings.Join(eventNames(), ", "), "unknown event %q", name)
		}
	}
	if o.json && o.plain {
		return usageErrorf("", "--json and --plain exclude each other")
	}
	return checkFor(o.duration)
}

func eventNames() []string {
	return append(render.Each(keyspace.EventKinds(), func(k keyspace.EventKind) string { return string(k) }), findingName)
}

// findingName is the name of findings among the kinds of events.
const findingName = "finding"

// eventSource is where a watcher gets its events, for example an inspect.Watcher.
type eventSource interface {
	Next(context.Context) ([]keyspace.Event, []keyspace.Notice, error)
	Known() keyspace.Snapshot
}

// findingsInterval is the time between two checks for findings without an event. A check of many
// locks takes at most 1/findingsRest of the time.
const (
	findingsInterval = 500 * time.Millisecond
	findingsRest     = 20
)

// watcher prints events and findings.
type watcher struct {
	source    eventSource
	options   watchOptions
	selection *selection
	output
	title      string
	several    bool                // the source has several servers
	lostAt     time.Time           // last answer before the time without one
	reported   map[findingKey]bool // current findings that were printed
	lastWarn   time.Time           // time of the last check by warn
	warned     bool                // warn has printed its warning
	scanned    bool                // all keys have been read once
	began      time.Time           // of the first check by warn
	scanNoted  bool                // a note says that the first scan goes on
	farLooks   int                 // in a row at a server that is far away
	nextReport time.Time           // time of the next check by reportFindings
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
		for _, n := range notices {
			w.note(n)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := w.printEvents(events); err != nil {
			return err
		}
		w.warn()
		if err := w.reportFindings(); err != nil {
			return err
		}
	}
}

// printEvents prints events. In text, each has the findings of its lock.
func (w *watcher) printEvents(events []keyspace.Event) error {
	for _, e := range events {
		found := findingsAbout(e)
		if !w.options.prints(string(e.Kind)) || !w.selection.matches(&e.Lock, found) {
			continue
		}
		if err := w.printedText("events", w.options.json, render.EventOf(e), render.EventSentence(e, found, w.selection.databases)+"\n"); err != nil {
			return err
		}
		if w.options.json || e.Kind.Ends() {
			continue
		}
		for _, f := range found {
			w.reported[findingKeyOf(f)] = true
		}
	}
	return nil
}

// reportFindings prints each finding once that appears without an event.
func (w *watcher) reportFindings() error {
	began := time.Now()
	if !w.options.prints(findingName) || began.Before(w.nextReport) {
		return nil
	}
	defer func() { w.nextReport = began.Add(max(findingsInterval, findingsRest*time.Since(began))) }()
	known := w.source.Known()
	picked := w.selection.filter(known)
	var found []keyspace.Finding
	for _, l := range picked.Locks {
		found = append(found, picked.Findings[l.ID()]...)
	}
	still := make(map[findingKey]bool)
	for _, f := range append(found, keyspace.ServerFindings(known)...) {
		c := findingKeyOf(f)
		still[c] = true
		if w.reported[c] {
			continue
		}
		about := "server"
		if f.Lock != (keyspace.ID{}) {
			about = render.LockName(f.Lock, w.selection.databases)
		}
		if err := w.printedText("findings", w.options.json, render.FindingEvent{At: render.Timestamp(known.At), Event: findingName, KeyedFinding: render.KeyedFindingOf(f)},
			fmt.Sprintf("%s %s %s, %s: %s %s\n", known.At.Local().Format("15:04:05.000"), findingName, about, f.Severity, widget.Plain(f.Text), render.Remedy(f))); err != nil {
			return err
		}
	}
	w.reported = still
	return nil
}

// missing returns the exitError for a watch that ends while a server does not answer, or nil.
// It warns of a watch that ends before its first scan.
func (w *watcher) missing() error {
	known := w.source.Known()
	text, unread := unreachable(known.Nodes), ""
	if read := known.Cost; !w.scanned && !known.Scanned() && read.Scanned < read.Keys {
		unread = fmt.Sprintf("%s of %s had been read by then", humanize.Count(read.Scanned), humanize.Plural(read.Keys, "key"))
	}
	if !w.lostAt.IsZero() {
		text = fmt.Sprintf("%s could not be read for %s", w.title, humanize.Duration(time.Since(w.lostAt)))
		if unread != "" {
			text += ", and " + unread
		}
	}
	if text == "" {
		if known.Scanned() && !known.Complete {
			return incomplete(known)
		}
		if unread != "" {
			w.notes.warning("the first scan goes on: %s", unread)
		}
		return nil
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("incomplete: %s", text)}
}

// warn reports once what locktop cannot see on servers that answer.
func (w *watcher) warn() {
	if w.warned || time.Since(w.lastWarn) < findingsInterval {
		return
	}
	w.lastWarn = time.Now()
	known := w.source.Known()
	w.noteScan(known)
	far := slices.IndexFunc(known.Nodes, func(n keyspace.Node) bool { return n.Ping >= farAway })
	if late := known.Watch.Lag; far < 0 || late < slowRead {
		w.farLooks = min(w.farLooks, 0) // the machine was busy
	} else if w.farLooks++; w.farLooks == 3 {
		w.farLooks = math.MinInt // once
		w.notes.note("a round trip to the server takes %s, and changes are read up to %s late: shorter holds may be missed",
			humanize.Precise(known.Nodes[far].Ping), humanize.Precise(late))
	}
	if w.warned = known.Scanned() && unreachable(known.Nodes) == "" && len(known.Problems) > 0; w.warned {
		w.notes.warning("%s", strings.Join(known.Problems, "; "))
	}
}

// noteScan says that the first scan goes on, if it takes long, and when it has ended: until then any hold under
// a new name may be missed, and then those that are shorter than a scan.
func (w *watcher) noteScan(known keyspace.Snapshot) {
	w.scanned = w.scanned || known.Scanned()
	w.began = cmp.Or(w.began, w.lastWarn)
	switch soFar := known.SoFar(); {
	case w.scanned && w.scanNoted:
		w.scanNoted = false
		w.notes.note("%s", strings.Join(append([]string{"the first scan has ended"}, slices.DeleteFunc(slices.Clone(known.Watch.Limitations), func(s string) bool { return !strings.Contains(s, "may be missed") })...), "; "))
	case !w.scanned && !w.scanNoted && len(known.Nodes) > 0 && w.lastWarn.Sub(w.began) >= longScan:
		w.scanNoted = true
		w.notes.note("the first scan goes on, %s: until it ends, holds under a name that begins like no known lock may be missed", strings.TrimPrefix(soFar, "so far, "))
	}
}

// A server with a round trip of farAway is worth a note if changes are read as late as slowRead.
const (
	farAway  = 50 * time.Millisecond
	slowRead = 250 * time.Millisecond
)

// longScan is how long a scan lasts that is worth a note.
const longScan = time.Second

// note prints a notice about a server in one line.
func (w *watcher) note(n keyspace.Notice) {
	switch n.Kind {
	case keyspace.ServerLost:
		w.lostAt = cmp.Or(n.Since, n.At)
		w.notes.note("%s cannot be read: %s; trying again until it can", w.title, n.Text)
	case keyspace.ServerBack:
		also := ""
		if n.Text != "" {
			also = ": " + n.Text
		}
		w.notes.note("back on %s after %s%s", w.title, humanize.Duration(n.At.Sub(w.lostAt)), also)
		w.lostAt = time.Time{}
	default:
		on := w.title
		if !strings.Contains(on, n.Node) || w.several {
			on += ": " + n.Node // which of several servers
		}
		w.notes.note("%s: %s", strings.TrimSuffix(on, ": "), n.Text)
	}
}

// findingsAbout returns the findings of an event's lock.
func findingsAbout(e keyspace.Event) []keyspace.Finding {
	return keyspace.Findings(keyspace.Snapshot{At: e.At, Locks: []*keyspace.Lock{&e.Lock}})
}

// endGrace is how long the first answer of several servers may take at the end of a watch.
const endGrace = 500 * time.Millisecond

// pollInterval is the time between two snapshots of several servers.
const pollInterval = 20 * time.Millisecond

// multiEventSource is the source of events of several servers.
type multiEventSource struct {
	fleet  tui.Source
	last   keyspace.Snapshot
	down   map[string]bool // servers that did not answer
	silent bool            // no server answered
}

// Next waits pollInterval and returns the events and notices since the last call.
func (n *multiEventSource) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(pollInterval):
	}
	began := time.Now()
	snap, err := n.fleet.Snapshot(ctx)
	if ctx.Err() != nil {
		if n.last.At.IsZero() && time.Since(began) > endGrace {
			return nil, n.onLost(ctx.Err()), ctx.Err()
		}
		return nil, nil, ctx.Err() // the servers did not have time to answer
	}
	if err != nil {
		return nil, n.onLost(err), err
	}
	n.last = snap
	notices := n.nodeChanges(snap)
	if n.silent {
		n.silent = false
		notices = slices.Insert(notices, 0, keyspace.Notice{At: time.Now(), Kind: keyspace.ServerBack})
	}
	return snap.Events, notices, nil
}

// Known returns the last snapshot.
func (n *multiEventSource) Known() keyspace.Snapshot { return n.last }

// onLost returns a notice once when no server answers.
func (n *multiEventSource) onLost(err error) []keyspace.Notice {
	if n.silent {
		return nil
	}
	n.silent = true
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerLost, Text: err.Error(), Since: answeredAt(n.last)}}
}

// answeredAt returns when the last of the servers of a snapshot answered, on the local
// clock; zero if that is unknown.
func answeredAt(snap keyspace.Snapshot) (last time.Time) {
	for _, n := range snap.Nodes {
		last = keyspace.Later(last, n.AnsweredAt)
	}
	return last
}

// nodeChanges returns the notices of a snapshot, with one for each server that stops answering while others
// answer, and one for each server that answers again, in place of those that its watcher has made meanwhile.
func (n *multiEventSource) nodeChanges(snap keyspace.Snapshot) []keyspace.Notice {
	var all []keyspace.Notice
	tell := func(addr, text string) {
		all = append(all, keyspace.Notice{At: time.Now(), Kind: keyspace.WatchModeChanged, Text: addr + " " + text})
	}
	back := make(map[string]bool)
	for _, one := range snap.Notices {
		switch {
		case one.Kind == keyspace.ServerLost:
		case one.Kind != keyspace.ServerBack:
			all = append(all, one)
		case !back[one.Node]: // of several databases
			back[one.Node] = true
			text := "answers again"
			if !one.Since.IsZero() {
				text += " after " + humanize.Duration(one.At.Sub(one.Since))
			}
			if one.Text != "" {
				text += ": " + one.Text
			}
			tell(one.Node, text)
		}
	}
	for _, node := range snap.Nodes {
		if node.Up == !n.down[node.Addr] {
			continue
		}
		switch n.down[node.Addr] = !node.Up; {
		case !node.Up:
			tell(node.Addr, "cannot be read: "+node.Error)
		case !back[node.Addr]:
			tell(node.Addr, "answers again")
		}
	}
	return all
}
