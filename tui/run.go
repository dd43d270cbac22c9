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

// Config is what the screen is given to look at and to drive.
type Config struct {
	Source       Source
	Scenes       []loadgen.Scenario // to choose from at the beginning, and to go through
	Scene        string             // the one to begin with; "" = there is a menu
	Quorum       []string           // the addresses of the load's Redlock, as it counts them
	Loader       Loader             // opens one where Load is nil; nil: there is none to be had
	Load         Load               // nil: there is none, and the Load page says so
	Formats      []keyspace.Format  // for commands that change a lock safely
	RedisCLI     []string           // flags of redis-cli in such commands, besides the address: --tls …
	Store        Store              // nil: what is stored is not shown
	Connector    Connector          // nil: there is nothing else to look at
	Breaker      Breaker            // nil: nothing is changed
	Production   bool               // ask twice before anything is changed
	Clipboard    Clipboard          // nil: there is none
	Frames       FrameSaver         // nil: frames are not saved
	Player       Player             // nil: this is live, not a recording
	CommandStats CommandStats       // nil: nobody counts

	Title   string        // where we are connected, free of credentials
	Every   time.Duration // from one look at the server to the next; default 250 ms, never less
	Theme   string        // one of Themes; default "system"
	Glyphs  string        // one of widget.GlyphSets; default "block"
	Calm    bool          // no motion but that of figures
	NoMouse bool          // leave the mouse to the terminal
	Dumb    bool          // the terminal can move its cursor and no more: no styles, no modes, no second screen
	Input   io.Reader     // default os.Stdin
	Output  io.Writer     // default os.Stdout
}

// ErrInterrupted is what Run returns when the user quit by Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the user quits it or ctx ends, and leaves the
// terminal as it was, or with the last picture on it if the user wants that. It
// returns nil when the user quit, ErrInterrupted if by Ctrl-C or an interrupt,
// and ctx's error when ctx ended.
func Run(ctx context.Context, w Config) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	if w.Output == nil {
		w.Output = os.Stdout
	}
	t := newTerminal(w.Output)
	t.dumb = w.Dumb
	defer t.close()
	a := newApp(looking, w)
	_, err := tea.NewProgram(canvas{a, t}, options(ctx, w, t)...).Run()
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

func options(ctx context.Context, w Config, t *terminal) []tea.ProgramOption {
	options := []tea.ProgramOption{
		tea.WithAltScreen(), tea.WithContext(ctx), tea.WithFPS(1), tea.WithOutput(t.forBubbletea()),
	}
	if w.Input != nil {
		options = append(options, tea.WithInput(w.Input))
	}
	if w.mouse() {
		options = append(options, tea.WithMouseCellMotion())
	}
	return options
}

// mouse reports whether the screen answers the mouse.
func (w Config) mouse() bool { return !w.NoMouse && !w.Dumb }
