package tui

import (
	"slices"
	"sort"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// state is the state that all pages share. Only Update changes it; views read it.
type state struct {
	config Config
	screen screen
	keymap keymap
	server string // the connected server
	now    time.Time

	live      *viewModel  // newest view model; nil before the first
	paused    *pausedView // nil unless paused
	history   keyspace.History
	log       eventLog
	timeline  timeline
	leases    leases
	refresher refresher
	playback  *PlaybackState // nil in a live view
	privacy   privacy

	run     loadState
	raw     rawValue
	clients holderClients
	snoozes snoozes

	dialog dialog
	notice notice
	next   tea.Msg // message that a key causes, handled before the next key; or nil
}

// screen is what a page must know of the terminal.
type screen struct {
	w, h     int
	renderer *lipgloss.Renderer // writes the styles of the theme
	theme    theme
	glyphs   widget.Glyphs
}

// notice is the message of the last key in the last line.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// leases are the observed leases of the locks that have a deadline. There are as many as locks, so
// an entry has the size that it needs.
type leases map[leaseKey]lease

// leaseKey is a lock on any node.
type leaseKey struct {
	key string
	db  int
}

// of returns the lease of a lock; zero if it has none.
func (s leases) of(id keyspace.ID) lease { return s[leaseKey{id.Key, id.DB}] }

// put stores the lease of a lock, or removes it if it is zero.
func (s leases) put(id keyspace.ID, l lease) {
	if l == (lease{}) {
		delete(s, leaseKey{id.Key, id.DB})
		return
	}
	s[leaseKey{id.Key, id.DB}] = l
}

// lease is the observed lease of a lock. length is the full width of its TTL bar: an estimate
// unless known is set.
type lease struct {
	expires int64 // in µs since 1970; 0 = there is no lease
	length  time.Duration
	known   bool // the deadline was read when it had just been set
}

// endsAt reports whether a deadline is that of the lease. Two readings of one deadline differ by
// the time between reading the clock and reading the TTL, which is less than sameDeadline.
func (l lease) endsAt(deadline time.Time) bool {
	d := deadline.UnixMicro() - l.expires
	return l.expires != 0 && max(d, -d) < sameDeadline.Microseconds()
}

// current returns the view model on the screen: the paused one or the newest. It is empty
// before the first snapshot.
func (s *state) current() *viewModel {
	switch {
	case s.paused != nil:
		return s.paused.model
	case s.live != nil:
		return s.live
	default:
		return &viewModel{review: new(keyspace.Review)}
	}
}

// clock returns the server's time of the view. It stops while the view is paused or stale.
func (s *state) clock() time.Time {
	switch {
	case s.playback != nil:
		return s.playback.At
	case s.paused != nil:
		return s.paused.clock
	case s.refresher.stale():
		return s.refresher.answered.Add(s.current().offset)
	default:
		return s.now.Add(s.current().offset)
	}
}

// apply makes p the newest view model and adds it to the history.
func (s *state) apply(p *viewModel) {
	s.live = p.withSnoozes(s)
	snap := p.snap
	snap.Events = p.events // without a watch, they come from the difference to the previous snapshot
	s.history.Add(snap, p.change, p.since)
	s.log.add(p.events)
	s.timeline.add(p.change, p.events)
	s.run.faultLog.onSnapshot(p.snap.At.Add(-p.offset), p.locks)
	if s.leases == nil {
		s.leases = make(leases, len(p.locks))
	}
	for _, l := range p.change.Locks {
		s.leases.put(l.ID(), s.leases.of(l.ID()).seen(l, p.snap.At))
	}
	for i := range p.events {
		if e := &p.events[i]; readsPromptly(p.snap.Watch) {
			s.leases.put(e.Lock.ID(), s.leases.of(e.Lock.ID()).begun(e))
		}
	}
	for _, id := range p.change.Ended() {
		s.leases.put(id, lease{})
	}
}

// sameDeadline is the smallest difference between two expiry times that counts as a new deadline.
const sameDeadline = 50 * time.Millisecond

// seen returns the lease after another snapshot of its lock. A new expiry time means that a
// client acquired or renewed the lock in between. The first snapshot of a lock that was never
// renewed counts the lease from the start of the hold.
func (old lease) seen(l *keyspace.Lock, now time.Time) lease {
	left, ok := l.TTL(now)
	if !ok {
		return lease{}
	}
	if old.endsAt(l.Expires) {
		return old
	}
	if age := l.Age(now); old.expires == 0 && l.Renewals == 0 && !age.AtLeast {
		left += age.Duration
	}
	return lease{expires: l.Expires.UnixMicro(), length: left}
}

// readsPromptly reports whether a watch reads a change shortly after it happens.
func readsPromptly(w keyspace.WatchStatus) bool {
	return (w.Mode == keyspace.Push || w.Mode == keyspace.Notifications) && w.Lag < leaseUnit
}

// leaseUnit is the resolution of a lease: a deadline is read shortly after it was set.
const leaseUnit = 100 * time.Millisecond

// begun returns the lease after an event of its lock. If the event set the deadline, the length
// is known: the time to the deadline, rounded up.
func (old lease) begun(e *keyspace.Event) lease {
	if e.Kind != keyspace.Acquired && e.Kind != keyspace.Renewed || e.Lock.Expires.IsZero() ||
		!old.endsAt(e.Lock.Expires) || !e.Holder.Expires.IsZero() && e.Holder.Expires.Before(e.Lock.Expires) {
		return old
	}
	unit := leaseUnit
	if old.length > 10*time.Second {
		unit *= 5
	}
	return lease{expires: old.expires, length: (e.Lock.Expires.Sub(e.At) + unit - 1).Truncate(unit), known: true}
}

// notify shows a message in the last line for up to 4 s. It returns nil: no command follows.
func (s *state) notify(text string) tea.Cmd {
	s.notice = notice{text, false, s.now.Add(4 * time.Second)}
	return nil
}

// reject shows for up to 4 s why a key has no effect. It returns nil: no command follows.
func (s *state) reject(why string) tea.Cmd {
	s.notice = notice{why, true, s.now.Add(4 * time.Second)}
	return nil
}

// rejectStart shows why the clients did not start: completely on the Load page, and with its
// beginning in the last line.
func (s *state) rejectStart(why string) {
	s.run.failed = why
	s.reject(why)
}

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
	p := &viewModel{snap: snap, offset: snap.ClockAhead(at)}
	var was keyspace.Snapshot
	if before != nil {
		was = before.snap
	}
	p.since = was.At
	p.change = keyspace.DeltaOf(was, snap)
	switch {
	case snap.Watch.Mode == "": // no watch follows the locks
		p.events = p.change.Diff(was)
	case before == nil: // earlier events, and an event for each current holder
		p.events = append(slices.Clip(snap.Events), unreported(snap.Events, p.change.Diff(was))...)
	default:
		p.events = snap.Events
	}
	switch {
	case before == nil:
		p.review = keyspace.NewReview(snap)
	case snap.At.Sub(before.review.CheckedAt) >= derivedFor(len(snap.Locks)):
		p.review = before.review.Next(snap, true)
	case p.change.Empty():
		p.review, p.locks, p.worst = before.review, before.locks, before.worst
		p.all, p.findings, p.snoozed = before.all, before.findings, before.snoozed
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
		i, found := slices.BinarySearchFunc(locks, id, func(l *keyspace.Lock, id keyspace.ID) int { return l.ID().Compare(id) })
		if found {
			return *locks[i], true
		}
		locks = locks[i:]
		next := sort.Search(len(locks), func(i int) bool { return locks[i].Node > id.Node })
		locks = locks[next:]
	}
	return keyspace.Lock{}, false
}
