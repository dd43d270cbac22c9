package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/loadgen"
)

// World is what the screen is given to look at and to drive.
type World struct {
	Source     Source
	Scenes     []loadgen.Scenario // to choose from at the beginning, and to go through
	Scene      string             // the one to begin with; "" = there is a menu
	Quorum     []string           // the addresses of the load's Redlock, as it counts them
	Load       Load               // nil: there is none, and the Load page says so
	Formats    []keyspace.Format  // for commands that change a lock safely
	Store      Store              // nil: what is stored is not shown
	Guide      Guide              // nil: there is nothing else to look at
	Breaker    Breaker            // nil: nothing is changed
	Production bool               // ask twice before anything is changed
	Clipboard  Clipboard          // nil: there is none
	Album      Album              // nil: frames are not saved
	Player     Player             // nil: this is live, not a recording
	Ledger     Ledger             // nil: nobody counts

	Title   string        // where we are connected, free of credentials
	Every   time.Duration // from one look at the server to the next; default 250 ms, never less
	Theme   string        // one of Themes; default "system"
	Glyphs  string        // one of widget.GlyphSets; default "block"
	Calm    bool          // no motion but that of figures
	NoMouse bool          // leave the mouse to the terminal
	Input   io.Reader     // default os.Stdin
	Output  io.Writer     // default os.Stdout
}

// ErrInterrupted is what Run returns when the user quit by Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the user quits it or ctx ends, and leaves the
// terminal as it was, or with the last picture on it if the user wants that. It
// returns nil when the user quit, ErrInterrupted if by Ctrl-C or an interrupt,
// and ctx's error when ctx ended.
func Run(ctx context.Context, w World) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	if w.Output == nil {
		w.Output = os.Stdout
	}
	a := newApp(looking, w)
	_, err := tea.NewProgram(a, options(ctx, w)...).Run()
	switch {
	case errors.Is(err, tea.ErrInterrupted), err == nil && a.interrupted:
		return ErrInterrupted
	case err == nil && a.leave:
		_, err := fmt.Fprintln(w.Output, a.View())
		return err
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("run the screen: %w", err)
	}
}

func options(ctx context.Context, w World) []tea.ProgramOption {
	options := []tea.ProgramOption{
		tea.WithAltScreen(), tea.WithContext(ctx), tea.WithFPS(60), tea.WithOutput(synchronized(w.Output)),
	}
	if w.Input != nil {
		options = append(options, tea.WithInput(w.Input))
	}
	if !w.NoMouse {
		options = append(options, tea.WithMouseCellMotion())
	}
	return options
}

// Frames are written between these: a terminal that knows them shows a frame
// only when it is complete, all others ignore them.
const (
	beginFrame = "\x1b[?2026h"
	endFrame   = "\x1b[?2026l"
)

// synchronized makes every write to out appear at once. bubbletea writes a
// frame in one piece.
func synchronized(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); ok {
		return &frameFile{f}
	}
	return &frameWriter{out}
}

// frameWriter puts the marks around each write.
type frameWriter struct{ out io.Writer }

func (w *frameWriter) Write(p []byte) (int, error) {
	return writeFrame(w.out, p)
}

// frameFile is a frameWriter that still is a file, so that bubbletea can ask it
// for the size of the window.
type frameFile struct{ *os.File }

func (f *frameFile) Write(p []byte) (int, error) {
	return writeFrame(f.File, p)
}

// writeFrame writes p between the marks in one write, and counts p's bytes only.
func writeFrame(out io.Writer, p []byte) (int, error) {
	framed := make([]byte, 0, len(p)+len(beginFrame)+len(endFrame))
	framed = append(framed, beginFrame...)
	framed = append(framed, p...)
	framed = append(framed, endFrame...)
	n, err := out.Write(framed)
	return max(0, min(n-len(beginFrame), len(p))), err
}
