package tui

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
)

// pausedView is the view model on a paused screen, and when the pause began.
type pausedView struct {
	model   *viewModel
	clock   time.Time // server's time of the view
	since   time.Time // local start of the pause
	events  int       // number of events before the pause
	rewound bool      // the view is older than the pause
}

// pause toggles the pause.
func (s *state) pause() {
	switch {
	case s.paused != nil:
		s.paused = nil
	case s.live == nil:
		s.reject("nothing to pause yet")
	default:
		s.paused = &pausedView{model: s.live, clock: s.clock(), since: s.now, events: s.log.total}
	}
}

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
		s.paused = nil
		s.notify("this is now")
		return
	case at.Before(oldest):
		s.notify("no older snapshot is kept: this one is " + humanize.Duration(newest.Sub(oldest)) + " old")
		at = oldest
	}
	if s.paused == nil {
		s.pause()
	}
	snap, _ := s.history.At(at)
	held := *s.paused
	held.model, held.clock, held.rewound = newViewModel(snap, s.now, nil).withSnoozes(s), at, true
	s.paused = &held
}

// past returns the events up to the shown moment.
func (s *state) past() []keyspace.Event {
	if s.paused == nil {
		return s.log.events
	}
	n := len(s.log.events)
	for n > 0 && s.log.events[n-1].At.After(s.paused.clock) {
		n--
	}
	return s.log.events[:n]
}

// rewindStep is the distance of one rewind key press in a live view.
const rewindStep = time.Second

// Below is what differs for a recording: the Player controls time.

// seekStep is the distance of one rewind or forward key press in a recording.
const seekStep = 5 * time.Second

// speeds lists the playback speeds.
var speeds = []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32}

// replayKey handles pause, rewind, forward and live.
func (a *app) replayKey(act action) {
	p := a.config.Player
	now := p.Playing()
	switch act {
	case pause:
		p.Pause(!now.Paused)
	case rewind:
		a.seek(now.At.Add(-seekStep))
	case forward:
		a.seek(now.At.Add(seekStep))
	case live:
		a.seek(now.Last)
	}
	a.syncPlayer()
}

// seek goes to a moment of the recording. The next snapshot resets everything derived from
// earlier ones.
func (a *app) seek(to time.Time) {
	a.config.Player.Seek(to)
	a.seekCount++
	a.refresher.next = a.now
	a.syncPlayer()
}

// syncPlayer updates the playback state from the Player.
func (a *app) syncPlayer() {
	if a.config.Player != nil {
		now := a.config.Player.Playing()
		a.playback = &now
	}
}

// resetReplay discards history, events and timeline after a seek.
func (a *app) resetReplay() {
	a.seekSeen = a.seekCount
	a.live, a.paused = nil, nil
	a.history, a.log, a.timeline = keyspace.History{}, eventLog{}, timeline{}
}

// setSpeed sets the playback speed.
func (a *app) setSpeed(factor float64) {
	a.config.Player.SetSpeed(factor)
	a.syncPlayer()
	a.notify(fmt.Sprintf("playback %g%s", factor, a.screen.glyphs.Times))
}

// position describes the position in the recording.
func (p *PlaybackState) position(s *state) string {
	sign := s.screen.glyphs.Play
	if p.Paused {
		sign = s.screen.glyphs.Paused
	}
	text := fmt.Sprintf(" %s %s / %s ", sign, humanize.Clock(p.At.Sub(p.First)), humanize.Clock(p.Last.Sub(p.First)))
	if p.Speed != 1 {
		text += fmt.Sprintf("%g%s ", p.Speed, s.screen.glyphs.Times)
	}
	return text
}
