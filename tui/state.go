package tui

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// state is the state that all pages share. Only Update changes it; views read it.
type state struct {
	screen screen
	server string // the connected server
	now    time.Time

	live      *viewModel  // newest view model; nil before the first
	paused    *pausedView // nil unless paused
	history   keyspace.History
	log       eventLog
	timeline  timeline
	leases    map[keyspace.ID]lease
	refresher refresher
	playback  *PlaybackState // nil in a live view
	privacy   privacy

	run     loadState
	raw     rawValue
	snoozes snoozes
	formats []keyspace.Format

	redisCLI []string // flags of redis-cli in copied commands

	dialog dialog
	notice notice
	next   tea.Msg // message that a key causes, handled before the next key; or nil
}

// screen is what a page must know of the terminal.
type screen struct {
	w, h   int
	theme  theme
	glyphs widget.Glyphs
	calm   bool // no animation
}

// notice is the message of the last key in the last line.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// lease is the observed lease of a lock. length is the full width of its TTL bar.
type lease struct {
	expires time.Time
	length  time.Duration
	holder  string    // first holder
	first   time.Time // when the screen first saw this holder
}

// current returns the view model on the screen: the paused one or the newest. It is empty
// before the first snapshot.
func (s *state) current() *viewModel {
	switch {
	case s.paused != nil:
		return s.paused.picture
	case s.live != nil:
		return s.live
	default:
		return &viewModel{}
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
	s.live = p.quietened(s)
	s.history.Add(p.withEvents())
	s.log.add(p.events)
	s.timeline.add(p.change, p.events)
	s.run.faultLog.grants(p.snap.At.Add(-p.offset), p.locks)
	if s.leases == nil {
		s.leases = make(map[keyspace.ID]lease, len(p.locks))
	}
	for i := range p.change.Locks {
		l := &p.change.Locks[i]
		s.leases[l.ID()] = s.leases[l.ID()].seen(l, p.snap.At)
	}
	for _, id := range p.change.Gone {
		delete(s.leases, id)
	}
}

// moved is the smallest difference between two expiry times that counts as a new deadline. Two
// readings of one deadline differ by the time between reading the clock and reading the TTL.
const moved = 50 * time.Millisecond

// seen returns the lease after another snapshot of its lock. A new expiry time means that a
// client acquired or renewed the lock in between. The first snapshot of a lock that was never
// renewed counts the lease from the start of the hold.
func (old lease) seen(l *keyspace.Lock, now time.Time) lease {
	next := old.heldBy(l, now)
	left, ok := l.TTL(now)
	if !ok {
		next.expires, next.length = time.Time{}, 0
		return next
	}
	if !old.expires.IsZero() && l.Expires.Sub(old.expires).Abs() < moved {
		return next
	}
	if old.expires.IsZero() && l.Renewals == 0 {
		left += l.Age(now)
	}
	next.expires, next.length = l.Expires, left
	return next
}

// heldBy returns the lease with the first holder and the time of its first sighting.
func (old lease) heldBy(l *keyspace.Lock, now time.Time) lease {
	if len(l.Holders) == 0 {
		old.holder, old.first = "", time.Time{}
	} else if id := l.Holders[0].ID; old.first.IsZero() || id != old.holder {
		old.holder, old.first = id, now
	}
	return old
}

// stale reports whether the view is not paused and its data is out of date.
func (s *state) stale() bool { return s.paused == nil && s.refresher.stale() }

// notify shows a message in the last line for up to 4 s.
func (s *state) notify(text string) { s.notice = notice{text, false, s.now.Add(4 * time.Second)} }

// reject shows for up to 4 s why a key has no effect.
func (s *state) reject(why string) { s.notice = notice{why, true, s.now.Add(4 * time.Second)} }
