package tui

import (
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// still is a picture that is held still, the newest at the moment of the pause
// or an older one.
type still struct {
	picture *picture
	clock   time.Time // the server's, that it is drawn at
	since   time.Time // ours, when the pause began
	events  int       // that had happened until then
	rewound bool      // it is older than the pause
}

// pause holds the picture still, or lets it go on.
func (s *state) pause() {
	switch {
	case s.still != nil:
		s.goOn()
	case s.live == nil:
		s.refuse("nothing to hold still yet")
	default:
		s.still = &still{picture: s.live, clock: s.clock(), since: s.now, events: s.journal.total}
	}
}

// goOn returns to the newest picture.
func (s *state) goOn() { s.still = nil }

// missed is the number of events since the pause began.
func (s *state) missed() int { return s.journal.total - s.still.events }

// wind goes back, or forward, in the time that is kept.
func (s *state) wind(by time.Duration) {
	if s.still == nil {
		if by > 0 {
			s.refuse("this is now")
			return
		}
		s.pause()
	}
	if s.still != nil {
		s.windTo(s.still.clock.Add(by))
	}
}

// windTo shows the picture of a moment, on the server's clock. Past the newest
// there is, the pause ends.
func (s *state) windTo(at time.Time) {
	oldest, newest := s.history.Span()
	switch {
	case oldest.IsZero():
		s.refuse("there is no past yet")
		return
	case !at.Before(newest):
		s.goOn()
		s.tell("this is now")
		return
	case at.Before(oldest):
		s.tell("no older picture is kept: this one is " + humanize.Duration(newest.Sub(oldest)) + " old")
		at = oldest
	}
	if s.still == nil {
		s.pause()
	}
	snap, _ := s.history.At(at)
	held := *s.still
	held.picture, held.clock, held.rewound = newPicture(snap, s.now, nil).quietened(s), at, true
	s.still = &held
}

// past returns the events up to what is shown.
func (s *state) past() []keyspace.Event {
	if s.still == nil {
		return s.journal.events
	}
	return s.journal.until(s.still.clock)
}
