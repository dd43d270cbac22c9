package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/recording"
	"locktop/tui"
)

// replayFromEnd is how long before its end a recording in a directory is shown at first:
// a recording that is always on is opened because of what has just happened.
const replayFromEnd = 5 * time.Minute

func (p *program) replayCommand() *cobra.Command {
	r := &screenRun{program: p}
	var at string
	set := flagSection("Playback")
	set.StringVar(&at, "at", "", "`time` to begin at: "+humanize.MomentForms)
	return withFlags(&cobra.Command{
		Use:   "replay FILE|DIR [flags]",
		Short: "Show a recording on the screen",
		Long: fmt.Sprintf(`Shows a recording on the screen: a file of locktop record, or a directory of locktop
export --record. Space pauses, < and > go back and forward, + and - play faster and
slower, and :at 12:31:07 goes to a time.

A file is shown from its beginning, and a directory from %s before its end. --at sets another
time: %s (before the end). Times are local.
A time without a date is the latest such time in the recording.

Of a damaged segment, 30 s of a file or 20 minutes of a directory, the part before the
damage is shown. The deadlines of renewed locks in a directory are exact to 1.5 s.`, humanize.Setting(replayFromEnd), humanize.MomentForms),
		Example: `  locktop replay night.lockrec
  locktop replay /var/lib/locktop/recording --at 03:12
  locktop replay /var/lib/locktop/recording --at '2026-11-22 03:12:07'
  locktop replay /var/lib/locktop/recording --at -15m`,
		Args: func(cmd *cobra.Command, args []string) error { return oneArgument(cmd, args, "file or directory") },
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.replay(cmd.Context(), args[0], at)
		},
	}, set, subset(r.selection.flags(), func(name string) bool { // the flags of the recorder found the locks
		return slices.Contains([]string{"format", "stuck", "overdue"}, name)
	}), r.look.flags())
}

// withLimits returns a source whose locks have these limits. Without limits, those of the
// recorder count.
func withLimits(source tui.Source, rules limits) tui.Source {
	if len(rules) == 0 {
		return source
	}
	return sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
		snap, err := source.Snapshot(ctx)
		snap.Locks = slices.Clone(snap.Locks)
		for i := range snap.Locks {
			l := *snap.Locks[i]
			l.OverdueIn = inspect.OverdueIn(rules, l.Key)
			snap.Locks[i] = &l
		}
		return snap, err
	})
}

// oneArgument checks that there is one argument; noun says what it names.
func oneArgument(cmd *cobra.Command, args []string, noun string) error {
	if len(args) != 1 {
		return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes one %s", cmd.CommandPath(), noun)
	}
	return nil
}

func (p *screenRun) replay(ctx context.Context, name, at string) error {
	if err := p.check(); err != nil {
		return err
	}
	r, err := recording.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w%s", name, err, targetsIn(name))
	}
	defer r.Close()
	player := newPlayer(r)
	begin, err := beginOf(r, at)
	if err != nil {
		return err
	}
	player.Seek(begin)
	if err := r.Damage(); err != nil {
		p.notes.warning("%s is %v; the intact part is shown", name, err)
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	return p.show(ctx, tui.Config{Source: p.selection.selected(withLimits(player, p.selection.limits)), Player: player, Title: filepath.Base(name)})
}

// beginOf returns the time at which a recording is shown first. at is the flag --at.
func beginOf(r *recording.Reader, at string) (time.Time, error) {
	first, last := r.Span()
	if at != "" {
		begin, err := humanize.ParseMoment(at, last, humanize.Span{First: first, Last: last})
		if err != nil {
			return time.Time{}, usageErrorf("", "--at: %w", err)
		}
		return begin, nil
	}
	if r.AlwaysOn() {
		return last.Add(-replayFromEnd), nil // Seek moves it into the recording
	}
	return first, nil
}

// targetsIn names the recordings of several targets in a directory, for an error; "" if
// there are none.
func targetsIn(dir string) string {
	segments, err := filepath.Glob(filepath.Join(dir, "*", "*.lockrec"))
	if err != nil || len(segments) == 0 {
		return ""
	}
	return "; there are the recordings " + strings.Join(slices.Compact(render.Each(segments, filepath.Dir)), ", ")
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

	gapFrom, gapUntil time.Time // the gap in which the last snapshot is
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
	p.gapFrom, p.gapUntil = p.reader.Gap()
	return snap, nil
}

// now returns the current position. The caller must hold the mutex.
func (p *player) now() time.Time {
	at := p.from
	if !p.paused {
		at = at.Add(time.Duration(float64(time.Since(p.since)) * p.speed))
	}
	_, last := p.reader.Span()
	return keyspace.Earliest(at, last)
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
	to = keyspace.Earliest(keyspace.Later(to, first), last)
	p.from, p.since, p.shown = to, time.Now(), time.Time{}
}

// Playing implements tui.Player.
func (p *player) Playing() tui.PlaybackState {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, last := p.reader.Span()
	playing := tui.PlaybackState{At: p.now(), First: first, Last: last, Speed: p.speed, Paused: p.paused, GapFrom: p.gapFrom, GapUntil: p.gapUntil}
	if err := p.reader.Damage(); err != nil {
		playing.Damage = err.Error()
	}
	return playing
}
