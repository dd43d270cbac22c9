package tui

import (
	"slices"
	"time"

	"locktop/keyspace"
)

// viewModel is a snapshot with everything derived from it. It is immutable.
type viewModel struct {
	snap     keyspace.Snapshot
	change   keyspace.Delta // from the previous snapshot
	events   []keyspace.Event
	locks    []keyspace.Lock                   // of the snapshot, the most severe first
	all      []keyspace.Finding                // of the locks, then of the servers
	findings []keyspace.Finding                // those of all that are not snoozed
	snoozed  []keyspace.Finding                // those of all that are snoozed
	worst    map[keyspace.ID]keyspace.Severity // of each lock with a finding
	offset   time.Duration                     // server's clock minus local clock
	derived  time.Time                         // time of the snapshot that order and findings come from
	owners   *ownerships                       // of the lock drawn last; nil = not searched yet
}

// While no lock changes, order and findings stay valid for derivedEach per lock, from
// derivedLeast to derivedMost: computing them takes longer for more locks.
const (
	derivedEach  = 200 * time.Microsecond
	derivedLeast = time.Second
	derivedMost  = 5 * time.Second
)

// derivedFor returns how long order and findings stay valid for a number of locks.
func derivedFor(locks int) time.Duration {
	return min(max(time.Duration(locks)*derivedEach, derivedLeast), derivedMost)
}

// newViewModel derives the view model of a snapshot taken at local time at. before is the
// previous view model, or nil.
func newViewModel(snap keyspace.Snapshot, at time.Time, before *viewModel) *viewModel {
	p := &viewModel{snap: snap, offset: snap.At.Sub(at)}
	var was keyspace.Snapshot
	if before != nil {
		was = before.snap
	}
	p.change = keyspace.DeltaOf(was, snap)
	switch {
	case snap.Watch.Mode == "": // no watch follows the locks
		p.events = p.change.Diff(was)
	case before == nil: // earlier events, and an event for each current holder
		p.events = append(slices.Clip(snap.Events), unreported(snap.Events, p.change.Diff(was))...)
	default:
		p.events = snap.Events
	}
	if before != nil && p.change.Empty() && snap.At.Sub(before.derived) < derivedFor(len(snap.Locks)) {
		p.locks, p.worst, p.derived = before.locks, before.worst, before.derived
		p.all, p.findings, p.snoozed = before.all, before.findings, before.snoozed
		return p
	}
	p.compute()
	return p
}

// unreported returns the events without those whose lock and holder are in told.
func unreported(told, events []keyspace.Event) []keyspace.Event {
	type who struct {
		lock   keyspace.ID
		holder string
	}
	known := make(map[who]bool, len(told))
	for i := range told {
		known[who{told[i].Lock.ID(), told[i].Holder.ID}] = true
	}
	return slices.DeleteFunc(events, func(e keyspace.Event) bool { return known[who{e.Lock.ID(), e.Holder.ID}] })
}

// withEvents returns the snapshot with its events. Without a watch, the events come from the
// difference to the previous snapshot.
func (p *viewModel) withEvents() keyspace.Snapshot {
	snap := p.snap
	snap.Events = p.events
	return snap
}

// changed reports whether the view model differs from the previous one.
func (p *viewModel) changed() bool {
	return len(p.events) > 0 || !p.change.Empty() || p.derived.Equal(p.snap.At)
}

// compute derives findings and order.
func (p *viewModel) compute() {
	p.derived = p.snap.At
	p.all = append(keyspace.Findings(p.snap), keyspace.ServerFindings(p.snap)...)
	p.findings = p.all
	p.rank()
}

// rank orders the locks by severity.
func (p *viewModel) rank() {
	p.locks = keyspace.SortBySeverity(p.snap, p.findings)
	p.worst = make(map[keyspace.ID]keyspace.Severity, len(p.findings))
	for _, f := range p.findings {
		p.worst[f.Lock] = max(p.worst[f.Lock], f.Severity)
	}
}

// findingsFor returns the findings on one lock that are not snoozed.
func (p *viewModel) findingsFor(id keyspace.ID) []keyspace.Finding { return findingsOn(id, p.findings) }

// asleep returns the snoozed findings on one lock.
func (p *viewModel) asleep(id keyspace.ID) []keyspace.Finding { return findingsOn(id, p.snoozed) }

func findingsOn(id keyspace.ID, all []keyspace.Finding) []keyspace.Finding {
	var found []keyspace.Finding
	for _, f := range all {
		if f.Lock == id {
			found = append(found, f)
		}
	}
	return found
}

// lock returns a lock of the snapshot.
func (p *viewModel) lock(id keyspace.ID) (keyspace.Lock, bool) {
	for i := range p.locks {
		if p.locks[i].Key == id.Key && p.locks[i].ID() == id {
			return p.locks[i], true
		}
	}
	return keyspace.Lock{}, false
}

// waiting returns the number of waiters on all locks.
func (p *viewModel) waiting() int {
	n := 0
	for i := range p.locks {
		n += p.locks[i].WaiterCount()
	}
	return n
}
