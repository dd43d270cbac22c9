package tui

import (
	"fmt"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// This file is what is different when a recording is shown: time belongs to a
// player.

// seekStep is how far one key goes in a recording.
const seekStep = 5 * time.Second

// speeds are those of the player.
func speeds() []float64 { return []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32} }

// playerDoes answers the keys of time.
func (a *app) playerDoes(act action) {
	p := a.world.Player
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
	a.follow()
}

// seek goes to a moment of the recording. What was worked out of the pictures
// before is of no use there.
func (a *app) seek(to time.Time) {
	a.world.Player.Seek(to)
	a.jumps++
	a.link.next = a.now
	a.follow()
}

// follow looks where the player is.
func (a *app) follow() {
	if a.world.Player != nil {
		now := a.world.Player.Playing()
		a.playing = &now
	}
}

// startAnew forgets the past, after a jump.
func (a *app) startAnew() {
	a.landed = a.jumps
	a.live, a.still = nil, nil
	a.history, a.journal, a.chronicle = keyspace.History{}, journal{}, chronicle{}
	a.leases = nil
}

// setSpeed plays faster, or slower.
func (a *app) setSpeed(factor float64) {
	a.world.Player.SetSpeed(factor)
	a.follow()
	a.tell(fmt.Sprintf("playback %g%s", factor, a.glyphs.Times))
}

// nextSpeed is the next of the speeds in a direction.
func nextSpeed(now float64, direction int) float64 {
	all := speeds()
	for i, s := range all {
		if s == now {
			return all[max(0, min(i+direction, len(all)-1))]
		}
	}
	return 1
}

// position says where in the recording we are.
func (p *Playing) position(s *state) string {
	sign := s.glyphs.Play
	if p.Paused {
		sign = s.glyphs.Paused
	}
	text := fmt.Sprintf(" %s %s / %s ", sign, humanize.Clock(p.At.Sub(p.First)), humanize.Clock(p.Last.Sub(p.First)))
	if p.Speed != 1 {
		text += fmt.Sprintf("%g%s ", p.Speed, s.glyphs.Times)
	}
	return text
}
