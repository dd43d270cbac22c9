package tui

import (
	"fmt"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// This file holds what differs for a recording: the Player controls time.

// seekStep is the distance of one rewind or forward key press in a recording.
const seekStep = 5 * time.Second

// speeds lists the playback speeds.
func speeds() []float64 { return []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32} }

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

// resetReplay discards history, events, timeline and leases after a seek.
func (a *app) resetReplay() {
	a.seekSeen = a.seekCount
	a.live, a.paused = nil, nil
	a.history, a.log, a.timeline = keyspace.History{}, eventLog{}, timeline{}
	a.leases = nil
}

// setSpeed sets the playback speed.
func (a *app) setSpeed(factor float64) {
	a.config.Player.SetSpeed(factor)
	a.syncPlayer()
	a.notify(fmt.Sprintf("playback %g%s", factor, a.screen.glyphs.Times))
}

// nextSpeed returns the next speed in a direction.
func nextSpeed(now float64, direction int) float64 {
	all := speeds()
	for i, s := range all {
		if s == now {
			return all[max(0, min(i+direction, len(all)-1))]
		}
	}
	return 1
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
