package tui

import (
	"slices"
	"time"

	"locktop/keyspace"
)

// viewModel is one snapshot with all that follows from it. It is immutable.
type viewModel struct {
	snap     keyspace.Snapshot
	change   keyspace.Delta // from the picture before
	events   []keyspace.Event
	locks    []keyspace.Lock                   // those of the snapshot, what does most damage first
	all      []keyspace.Finding                // on the locks, then on the servers
	findings []keyspace.Finding                // those of all that are not snoozed
	snoozed  []keyspace.Finding                // and those that are
	worst    map[keyspace.ID]keyspace.Severity // of the locks that have a finding
	offset   time.Duration                     // server's clock minus ours
	derived  time.Time                         // of the snapshot that order and findings are from
}

// How long order and findings stay as they are while no lock changes: the time
// for each lock, within bounds. To work them out takes longer the more there are.
const (
	derivedEach  = 200 * time.Microsecond
	derivedLeast = time.Second
	derivedMost  = 5 * time.Second
)

// derivedFor returns how long that is for so many locks.
func derivedFor(locks int) time.Duration {
	return min(max(time.Duration(locks)*derivedEach, derivedLeast), derivedMost)
}

// newViewModel works out what follows from a snapshot that was taken at a moment
// of our clock. before is the picture before it, nil if there is none.
func newViewModel(snap keyspace.Snapshot, at time.Time, before *viewModel) *viewModel {
	p := &viewModel{snap: snap, offset: snap.At.Sub(at)}
	var was keyspace.Snapshot
	if before != nil {
		was = before.snap
	}
	p.change = keyspace.DeltaOf(was, snap)
	switch {
	case snap.Follow.Mode == "": // nobody has followed it
		p.events = p.change.Diff(was)
	case before == nil: // what has happened, and who is there
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

// unreported are the events that are not among those that were told already, of the
// same lock and holder.
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

// withEvents is the snapshot with what has happened, also where nobody has followed
// it and only its difference to the one before tells.
func (p *viewModel) withEvents() keyspace.Snapshot {
	snap := p.snap
	snap.Events = p.events
	return snap
}

// changed reports whether there is anything in it that the picture before had not.
func (p *viewModel) changed() bool {
	return len(p.events) > 0 || !p.change.Empty() || p.derived.Equal(p.snap.At)
}

// compute works out what is wrong, and what does most damage.
func (p *viewModel) compute() {
	p.derived = p.snap.At
	p.all = append(keyspace.Findings(p.snap), keyspace.ServerFindings(p.snap)...)
	p.findings = p.all
	p.rank()
}

// rank works out what does most damage.
func (p *viewModel) rank() {
	p.locks = keyspace.SortBySeverity(p.snap, p.findings)
	p.worst = make(map[keyspace.ID]keyspace.Severity, len(p.findings))
	for _, f := range p.findings {
		p.worst[f.Lock] = max(p.worst[f.Lock], f.Severity)
	}
}

// findingsFor returns the findings on one lock that are not snoozed.
func (p *viewModel) findingsFor(id keyspace.ID) []keyspace.Finding { return findingsOn(id, p.findings) }

// asleep returns those that are.
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

// lock returns a lock of the picture.
func (p *viewModel) lock(id keyspace.ID) (keyspace.Lock, bool) {
	for i := range p.locks {
		if p.locks[i].Key == id.Key && p.locks[i].ID() == id {
			return p.locks[i], true
		}
	}
	return keyspace.Lock{}, false
}

// waiting is the number of waiters on all locks together.
func (p *viewModel) waiting() int {
	n := 0
	for i := range p.locks {
		n += p.locks[i].WaiterCount()
	}
	return n
}
