package tui

import (
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// pausedView is the view model on a paused screen, and when the pause began.
type pausedView struct {
	picture *viewModel
	clock   time.Time // server's time of the view
	since   time.Time // local start of the pause
	events  int       // number of events before the pause
	rewound bool      // the view is older than the pause
}

// pause toggles the pause.
func (s *state) pause() {
	switch {
	case s.paused != nil:
		s.unpause()
	case s.live == nil:
		s.reject("nothing to hold still yet")
	default:
		s.paused = &pausedView{picture: s.live, clock: s.clock(), since: s.now, events: s.log.total}
	}
}

// unpause returns to the newest view model.
func (s *state) unpause() { s.paused = nil }

// eventsSince returns the number of events since the pause began.
func (s *state) eventsSince() int { return s.log.total - s.paused.events }

// rewind moves the paused view by a duration within the history. It pauses a live view first.
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

// rewindTo shows the recorded snapshot of a moment of the server's time. A moment after the
// newest snapshot ends the pause.
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

// past returns the events up to the shown moment.
func (s *state) past() []keyspace.Event {
	if s.paused == nil {
		return s.log.events
	}
	return s.log.until(s.paused.clock)
}
