package tui

import (
	"maps"
	"slices"
	"sort"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
)

// viewModel is a snapshot with everything derived from it. It is immutable.
type viewModel struct {
	snap     keyspace.Snapshot
	since    time.Time      // of the previous snapshot; zero = there is none
	change   keyspace.Delta // from the previous snapshot
	events   []keyspace.Event
	review   *keyspace.Review                  // of this snapshot, or of an earlier one with the same locks
	locks    []*keyspace.Lock                  // of the review, the most severe first
	all      []keyspace.Finding                // of the locks, then of the servers
	findings []keyspace.Finding                // those of all that are not snoozed
	snoozed  []keyspace.Finding                // those of all that are snoozed
	worst    map[keyspace.ID]keyspace.Severity // of each lock with a finding
	offset   time.Duration                     // server's clock minus local clock
	owners   *ownerships                       // of the lock drawn last; nil = not searched yet
	hides    *bool                             // a lock may hide its waiters; nil = not searched yet
}

// hidesWaiters reports whether the format of a lock does not show its waiters.
func (m *viewModel) hidesWaiters(formats []keyspace.Format) bool {
	if m.hides == nil {
		hides := make(map[string]bool)
		for i := range formats {
			hides[formats[i].Name] = !formats[i].ShowsWaiters
		}
		m.hides = new(slices.ContainsFunc(m.locks, func(l *keyspace.Lock) bool { return hides[l.Format] }))
	}
	return *m.hides
}

// What a check of all locks has shown stays valid for derivedEach per lock, from derivedLeast to
// derivedMost, but for the locks that change: a check of more locks takes longer.
const (
	derivedEach  = 200 * time.Microsecond
	derivedLeast = time.Second
	derivedMost  = 5 * time.Second
)

// derivedFor returns how long a check of a number of locks stays valid.
func derivedFor(locks int) time.Duration {
	return min(max(time.Duration(locks)*derivedEach, derivedLeast), derivedMost)
}

// newViewModel derives the view model of a snapshot taken at local time at. before is the
// previous view model, or nil.
func newViewModel(snap keyspace.Snapshot, at time.Time, before *viewModel) *viewModel {
	first := before == nil
	if first {
		before = &viewModel{review: new(keyspace.Review)}
	}
	p := &viewModel{snap: snap, offset: snap.ClockAhead(at), since: before.snap.At, change: keyspace.DeltaOf(before.snap, snap), events: snap.Events}
	switch {
	case snap.Watch.Mode == "": // no watch follows the locks
		p.events = p.change.Diff(before.snap)
	case first: // earlier events, and an event for each current holder
		p.events = append(slices.Clip(snap.Events), unreported(snap.Events, p.change.Diff(before.snap))...)
	}
	switch {
	case first, snap.At.Sub(before.review.CheckedAt) >= derivedFor(len(snap.Locks)):
		p.review = before.review.Next(snap, true)
	case p.change.Empty():
		p.review, p.locks, p.worst, p.all, p.findings, p.snoozed = before.review, before.locks, before.worst, before.all, before.findings, before.snoozed
		return p
	default:
		p.review = before.review.Next(snap, false)
	}
	p.all = append(slices.Clip(p.review.Findings), keyspace.ServerFindings(p.snap)...)
	p.findings = p.all
	p.rank()
	return p
}

// unreported returns the events without those whose lock and holder are in reported.
func unreported(reported, events []keyspace.Event) []keyspace.Event {
	type hold struct {
		lock   keyspace.ID
		holder string
	}
	known := make(map[hold]bool, len(reported))
	for i := range reported {
		known[hold{reported[i].Lock.ID(), reported[i].Holder.ID}] = true
	}
	return slices.DeleteFunc(events, func(e keyspace.Event) bool { return known[hold{e.Lock.ID(), e.Holder.ID}] })
}

// rank orders the locks by severity.
func (p *viewModel) rank() {
	p.locks = p.review.Order(p.findings)
	p.worst = make(map[keyspace.ID]keyspace.Severity, len(p.findings))
	for _, f := range p.findings {
		p.worst[f.Lock] = max(p.worst[f.Lock], f.Severity)
	}
}

// findingsOn returns those of all findings that are on one lock.
func findingsOn(id keyspace.ID, all []keyspace.Finding) []keyspace.Finding {
	var found []keyspace.Finding
	for _, f := range all {
		if f.Lock.OnAnyNode() == id.OnAnyNode() {
			found = append(found, f)
		}
	}
	return found
}

// lock returns a lock of the snapshot, on whichever node it is.
func (p *viewModel) lock(id keyspace.ID) (keyspace.Lock, bool) {
	for locks := p.snap.Locks; len(locks) > 0; { // those of one node after those of another
		id.Node = locks[0].Node
		i, found := keyspace.FindLock(locks, id)
		if found {
			return *locks[i], true
		}
		locks = locks[i:]
		next := sort.Search(len(locks), func(i int) bool { return locks[i].Node > id.Node })
		locks = locks[next:]
	}
	return keyspace.Lock{}, false
}

// withSnoozes returns the view model with the snoozed findings moved from findings to snoozed.
func (p *viewModel) withSnoozes(s *state) *viewModel {
	maps.DeleteFunc(s.snoozes.until, func(_ findingID, until time.Time) bool { return !s.now.Before(until) })
	if len(s.snoozes.until) == 0 && len(p.snoozed) == 0 {
		return p
	}
	q := *p
	q.findings, q.snoozed = nil, nil
	for _, f := range p.all {
		if _, asleep := s.snoozes.until[idOf(&f)]; asleep {
			q.snoozed = append(q.snoozed, f)
		} else {
			q.findings = append(q.findings, f)
		}
	}
	q.rank()
	return &q
}

// onSnapshot makes the view model that arrived the newest, and updates the open page if something
// has changed.
func (a *app) onSnapshot(msg snapshotMsg) tea.Cmd {
	if msg.jump != a.seekCount { // the answer is older than the last seek
		a.refresher.busy, a.refresher.next = false, a.now
		return nil
	}
	a.refresher.end(msg.at, msg.err)
	if msg.err != nil {
		return nil
	}
	if a.seekSeen != a.seekCount {
		a.resetReplay()
	}
	a.apply(msg.model)
	if m := msg.model; len(m.events) > 0 || !m.change.Empty() || m.review.CheckedAt.Equal(m.snap.At) {
		a.page().arrange(&a.state)
	}
	return a.notifyCritical()
}

// apply makes p the newest view model and adds it to the history.
func (s *state) apply(p *viewModel) {
	s.live = p.withSnoozes(s)
	snap := p.snap
	snap.Events = p.events // without a watch, they come from the difference to the previous snapshot
	s.history.Add(snap, p.change, p.since)
	s.log.add(p.events)
	s.timeline.add(p.change, p.events)
	if len(s.config.Scenes) > 0 {
		s.tellExpiry(p.events)
	}
	s.run.faultLog.onSnapshot(p.snap.At.Add(-p.offset), p.locks)
}
