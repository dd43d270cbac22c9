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
}

// readsPromptly reports whether a watch reads a change shortly after it happens.
func readsPromptly(w keyspace.WatchStatus) bool {
	return (w.Mode == keyspace.Push || w.Mode == keyspace.Notifications) && w.Lag < 100*time.Millisecond
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
