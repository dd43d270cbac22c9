package tui

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// state is what the pages share. It is changed only in Update; views read it.
type state struct {
	where  string // where we are connected
	w, h   int
	now    time.Time
	theme  theme
	glyphs widget.Glyphs
	calm   bool // nothing moves by itself

	live      *viewModel  // the newest; nil before the first
	paused    *pausedView // the one that is held still; nil when none is
	history   keyspace.History
	journal   eventLog
	chronicle timeline
	leases    map[keyspace.ID]lease
	link      refresher
	playback  *PlaybackState // nil: this is live
	hidden    privacy

	loadState
	raw     rawValue
	snoozes snoozes
	formats []keyspace.Format

	redisCLI []string // flags in commands for redis-cli

	dialog dialog
	notice notice
	next   tea.Msg // what a key leads to before the next one is answered; nil: nothing
}

// notice is what the last key had to say.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// lease is how long a lock was taken or renewed for, as far as watching tells.
// It is what a TTL bar is full at.
type lease struct {
	expires time.Time
	length  time.Duration
	holder  string    // the first one
	first   time.Time // when the screen first saw that it holds the lock
}

// current is the picture on the screen: the newest, or the one that is held
// still. Before the first look it is empty.
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

// clock is the server's time that the picture is drawn at. It stands still
// while the picture does.
func (s *state) clock() time.Time {
	switch {
	case s.playback != nil:
		return s.playback.At
	case s.paused != nil:
		return s.paused.clock
	case s.link.stale():
		return s.link.answered.Add(s.current().offset)
	default:
		return s.now.Add(s.current().offset)
	}
}

// apply takes a new picture in.
func (s *state) apply(p *viewModel) {
	s.live = p.quietened(s)
	s.history.Add(p.withEvents())
	s.journal.add(p.events)
	s.chronicle.add(p.change, p.events)
	s.account.grants(p.snap.At.Add(-p.offset), p.locks)
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

// moved is how far an expiry must move to have been moved: two readings of one
// deadline differ by what passes between reading a clock and reading a TTL.
const moved = 50 * time.Millisecond

// seen is the lease after another look at its lock. When the expiry has moved,
// somebody took or renewed the lock since the last look; on the first look the
// start of the hold is the best there is.
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

// heldBy is the lease with who holds the lock first, and since when that is known.
func (old lease) heldBy(l *keyspace.Lock, now time.Time) lease {
	if len(l.Holders) == 0 {
		old.holder, old.first = "", time.Time{}
	} else if id := l.Holders[0].ID; old.first.IsZero() || id != old.holder {
		old.holder, old.first = id, now
	}
	return old
}

// stale reports whether the picture is older than it looks.
func (s *state) stale() bool { return s.paused == nil && s.link.stale() }

// notify puts a sentence into the last line for a while.
func (s *state) notify(text string) { s.notice = notice{text, false, s.now.Add(4 * time.Second)} }

// reject says why a key cannot be used.
func (s *state) reject(why string) { s.notice = notice{why, true, s.now.Add(4 * time.Second)} }
