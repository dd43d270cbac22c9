package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/recording"
	"locktop/tui"
)

// pastShown is how much of the past the screen shows after a jump.
const pastShown = 2 * time.Minute

// player plays a recording to the screen. It is safe for concurrent use.
type player struct {
	mu     sync.Mutex
	reader *recording.Reader
	speed  float64
	paused bool
	from   time.Time // position in the recording at the time since
	since  time.Time // by the clock of this machine
	shown  time.Time // time of the last snapshot; zero after a jump
}

func newPlayer(r *recording.Reader) *player {
	first, _ := r.Span()
	return &player{reader: r, speed: 1, from: first, since: time.Now()}
}

// Snapshot returns the current snapshot with the events since the last call.
func (p *player) Snapshot(context.Context) (keyspace.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, since := p.now(), p.shown
	if since.IsZero() {
		since = now.Add(-pastShown)
	}
	snap, err := p.reader.At(now, since)
	if err != nil {
		return keyspace.Snapshot{}, fmt.Errorf("play: %w", err)
	}
	p.shown = now
	return snap, nil
}

// now returns the current position. The caller must hold the mutex.
func (p *player) now() time.Time {
	at := p.from
	if !p.paused {
		at = at.Add(time.Duration(float64(time.Since(p.since)) * p.speed))
	}
	if _, last := p.reader.Span(); at.After(last) {
		return last
	}
	return at
}

// settle makes the current position the new start. The caller must hold the mutex.
func (p *player) settle() { p.from, p.since = p.now(), time.Now() }

// Pause implements tui.Player.
func (p *player) Pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	p.paused = on
}

// SetSpeed implements tui.Player.
func (p *player) SetSpeed(factor float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	p.speed = factor
}

// Seek implements tui.Player.
func (p *player) Seek(to time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, last := p.reader.Span()
	switch {
	case to.Before(first):
		to = first
	case to.After(last):
		to = last
	}
	p.from, p.since, p.shown = to, time.Now(), time.Time{}
}

// Playing implements tui.Player.
func (p *player) Playing() tui.PlaybackState {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, last := p.reader.Span()
	playing := tui.PlaybackState{At: p.now(), First: first, Last: last, Speed: p.speed, Paused: p.paused}
	if err := p.reader.Damage(); err != nil {
		playing.Damage = err.Error()
	}
	return playing
}
