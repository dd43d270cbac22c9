package tui

import (
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// pausedView is a picture that is held still, the newest at the moment of the pause
// or an older one.
type pausedView struct {
	picture *viewModel
	clock   time.Time // the server's, that it is drawn at
	since   time.Time // ours, when the pause began
	events  int       // that had happened until then
	rewound bool      // it is older than the pause
}

// pause holds the picture still, or lets it go on.
func (s *state) pause() {
	switch {
	case s.paused != nil:
		s.unpause()
	case s.live == nil:
		s.reject("nothing to hold still yet")
	default:
		s.paused = &pausedView{picture: s.live, clock: s.clock(), since: s.now, events: s.journal.total}
	}
}

// unpause returns to the newest picture.
func (s *state) unpause() { s.paused = nil }

// eventsSince is the number of events since the pause began.
func (s *state) eventsSince() int { return s.journal.total - s.paused.events }

// rewind goes back, or forward, in the time that is kept.
func (s *state) rewind(by time.Duration) {
	if s.paused == nil {
		if by > 0 {
			s.reject("this is now")
			return
		}
		s.pause()
	}
	if s.paused != nil {
		s.rewindTo(s.paused.clock.Add(by))
	}
}

// rewindTo shows the picture of a moment, on the server's clock. Past the newest
// there is, the pause ends.
func (s *state) rewindTo(at time.Time) {
	oldest, newest := s.history.Span()
	switch {
	case oldest.IsZero():
		s.reject("there is no past yet")
		return
	case !at.Before(newest):
		s.unpause()
		s.notify("this is now")
		return
	case at.Before(oldest):
		s.notify("no older picture is kept: this one is " + humanize.Duration(newest.Sub(oldest)) + " old")
		at = oldest
	}
	if s.paused == nil {
		s.pause()
	}
	snap, _ := s.history.At(at)
	held := *s.paused
	held.picture, held.clock, held.rewound = newViewModel(snap, s.now, nil).quietened(s), at, true
	s.paused = &held
}

// past returns the events up to what is shown.
func (s *state) past() []keyspace.Event {
	if s.paused == nil {
		return s.journal.events
	}
	return s.journal.until(s.paused.clock)
}
