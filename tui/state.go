package tui

import (
	"time"

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

	live     *picture // the newest; nil before the first
	paused   *picture // the one that is held still; nil when none is
	pausedAt time.Time
	missed   int // events since the pause
	leases   map[keyspace.ID]lease
	link     link

	fleet

	dialog dialog
	notice notice
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
}

// shown is the picture on the screen: the newest, or the one that is paused.
// Before the first look it is empty.
func (s *state) shown() *picture {
	switch {
	case s.paused != nil:
		return s.paused
	case s.live != nil:
		return s.live
	default:
		return &picture{}
	}
}

// clock is the server's time that the picture is drawn at. It stands still
// while the picture does.
func (s *state) clock() time.Time {
	at := s.now
	switch {
	case s.paused != nil:
		at = s.pausedAt
	case s.link.down():
		at = s.link.answered
	}
	return at.Add(s.shown().offset)
}

// land takes a new picture in.
func (s *state) land(p *picture) {
	if s.paused != nil && s.live != nil {
		s.missed += len(keyspace.Diff(s.live.snap, p.snap))
	}
	s.live = p
	leases := make(map[keyspace.ID]lease, len(p.locks))
	for i := range p.locks {
		l := &p.locks[i]
		id := l.ID()
		leases[id] = s.leases[id].seen(l, p.snap.At)
	}
	s.leases = leases
}

// moved is how far an expiry must move to have been moved: two readings of one
// deadline differ by what passes between reading a clock and reading a TTL.
const moved = 50 * time.Millisecond

// seen is the lease after another look at its lock. When the expiry has moved,
// somebody took or renewed the lock since the last look; on the first look the
// start of the hold is the best there is.
func (old lease) seen(l *keyspace.Lock, now time.Time) lease {
	left, ok := l.TTL(now)
	if !ok {
		return lease{}
	}
	if !old.expires.IsZero() && l.Expires.Sub(old.expires).Abs() < moved {
		return old
	}
	if old.expires.IsZero() && l.Renewals == 0 {
		left += l.Age(now)
	}
	return lease{l.Expires, left}
}

// pause holds the picture still, or lets it go on.
func (s *state) pause() {
	if s.paused != nil {
		s.paused = nil
		return
	}
	if s.live == nil {
		s.refuse("nothing to hold still yet")
		return
	}
	s.paused, s.pausedAt, s.missed = s.live, s.now, 0
}

// stale reports whether the picture is older than it looks.
func (s *state) stale() bool { return s.paused == nil && s.link.down() }

// tell puts a sentence into the last line for a while.
func (s *state) tell(text string) { s.notice = notice{text, false, s.now.Add(4 * time.Second)} }

// refuse says why a key cannot be used.
func (s *state) refuse(why string) { s.notice = notice{why, true, s.now.Add(4 * time.Second)} }
