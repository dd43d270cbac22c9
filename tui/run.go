package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// World is what the screen is given to look at and to drive.
type World struct {
	Source  Source
	Load    Load          // nil: there is none, and the Load page says so
	Title   string        // where we are connected, free of credentials
	Every   time.Duration // from one look at the server to the next; default 250 ms, never less
	NoColor bool          // no colours; bold, faint and reverse are used still
	ASCII   bool          // draw with ASCII alone
	Input   io.Reader     // default os.Stdin
	Output  io.Writer     // default os.Stdout
}

// Run shows the screen until the user quits it or ctx ends, and leaves the
// terminal as it was. It returns nil when the user quit, by q, Ctrl-C or an
// interrupt, and ctx's error when ctx ended.
func Run(ctx context.Context, w World) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	options := []tea.ProgramOption{tea.WithAltScreen(), tea.WithContext(ctx), tea.WithFPS(30)}
	if w.Input != nil {
		options = append(options, tea.WithInput(w.Input))
	}
	if w.Output == nil {
		w.Output = os.Stdout
	}
	options = append(options, tea.WithOutput(synchronized(w.Output)))
	_, err := tea.NewProgram(newApp(looking, w), options...).Run()
	switch {
	case err == nil, errors.Is(err, tea.ErrInterrupted):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("run the screen: %w", err)
	}
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
