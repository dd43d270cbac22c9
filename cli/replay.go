package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"locktop/keyspace"
	"locktop/keyspace/recording"
	"locktop/tui"
)

func (p *program) replayCommand() *cobra.Command {
	var s selection
	var look screenFlags
	cmd := &cobra.Command{
		Use:   "replay FILE [flags]",
		Short: "Show a recording on the screen",
		Long: `Shows a recording on the screen. Space pauses, < and > go back and forward, + and -
play faster and slower, and :at 12:31:07 goes to a time. A damaged or incomplete
file is shown up to the damage.`,
		Example: `  locktop replay night.lockrec`,
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.replay(cmd.Context(), &s, &look, args[0])
		},
	}
	cmdFlags(cmd, s.flags(), look.flags())
	return cmd
}

// oneFile checks that the only argument is the name of a file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes one file", cmd.CommandPath())
	}
	return nil
}

func (p *program) replay(ctx context.Context, s *selection, look *screenFlags, name string) error {
	if err := errors.Join(s.check(), look.check()); err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	r, err := recording.Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	if err := r.Damage(); err != nil {
		p.notes.warning("%s is %v; what comes before is shown", name, err)
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	player := newPlayer(r)
	return p.screen(ctx, look, tui.Config{Source: filteredSource{player, s}, Player: player, Title: filepath.Base(name)})
}

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

// rebase makes the current position the new start. The caller must hold the mutex.
func (p *player) rebase() { p.from, p.since = p.now(), time.Now() }

// Pause implements tui.Player.
func (p *player) Pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rebase()
	p.paused = on
}

// SetSpeed implements tui.Player.
func (p *player) SetSpeed(factor float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rebase()
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
