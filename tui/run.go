package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/muesli/termenv"

	"locktop/keyspace"
	"locktop/loadgen"
)

// Config holds the data sources and the options of the screen.
type Config struct {
	Source     Source
	Scenes     []loadgen.Scenario // scenes for the menu and for n/b
	Scene      string             // first scene; "" opens the menu
	Quorum     []string           // addresses of the load's Redlock, in its order
	Loader     Loader             // opens a load if Load is nil; nil if that is impossible
	Load       Load               // nil if there is none
	Formats    []keyspace.Format  // for the commands to copy
	RedisCLI   []string           // further flags of redis-cli in these commands, such as --tls
	Store      Store              // nil hides raw values
	Finder     Finder             // nil if the clients cannot be listed
	Connector  Connector          // nil if the target is fixed
	Executor   Executor           // nil makes the screen read-only
	Writer     Writer             // nil if :write cannot change that
	Production bool               // require the lock's name before an action, and ask before a rescan
	Rescan     func()             // scans all keys again, without a limit; nil if that is impossible
	Clipboard  Clipboard          // nil if there is none
	Frames     FrameSaver         // nil disables saving
	Player     Player             // nil in a live view
	Keys       map[string]string  // changed keys of actions; CheckKeys must accept them with Commands
	Commands   []RowCommand       // commands on a lock
	Runner     Runner             // nil only if there are no Commands
	Notifier   Notifier           // nil if the user is not notified

	Title   string          // the connected server, without credentials
	Every   time.Duration   // time between two requests; minimum and default 250 ms
	Theme   string          // one of Themes; default "system"
	Colours termenv.Profile // colours of the terminal; default all
	Glyphs  string          // one of widget.GlyphSets; default "block"
	NoMouse bool            // do not capture the mouse
	Dumb    bool            // the terminal can only move its cursor: no styles, modes or alternate screen
	Input   io.Reader       // default os.Stdin
	Output  io.Writer       // default os.Stdout
}

// ErrInterrupted is the error of Run after Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the user quits or ctx ends. It restores the terminal, and leaves
// the last frame on it if the user asks for that. It returns nil after quit, ErrInterrupted
// after Ctrl-C, and ctx's error after ctx ends. Run handles no signals: the caller ends ctx.
func Run(ctx context.Context, w Config) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	if w.Output == nil {
		w.Output = os.Stdout
	}
	a := newApp(looking, w)
	var gone atomic.Bool
	if f, ok := w.Output.(term.File); ok && term.IsTerminal(f.Fd()) {
		go untilGone(looking, f, func() { gone.Store(true); stop() })
	}
	_, err := tea.NewProgram(a, options(looking, w)...).Run()
	stop()
	a.acting.Lock() // the outcome of an action is logged
	switch {
	case err == nil && a.interrupted:
		return ErrInterrupted
	case err == nil && a.leave:
		_, err := fmt.Fprintln(w.Output, a.View())
		return err
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case gone.Load():
		return errors.New("the terminal is gone")
	default:
		return fmt.Errorf("run the screen: %w", err)
	}
}

// untilGone calls end when a terminal does not exist any more. Under nohup, or a shell that ignores SIGHUP, no signal
// tells that.
func untilGone(ctx context.Context, terminal term.File, end func()) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if !term.IsTerminal(terminal.Fd()) {
				end()
				return
			}
		}
	}
}

// maxFPS is the frequency at which bubbletea's renderer looks for a new frame, in Hz. It is the
// highest that bubbletea accepts: a key waits at most 8.3 ms for its frame.
const maxFPS = 120

func options(ctx context.Context, w Config) []tea.ProgramOption {
	options := []tea.ProgramOption{
		tea.WithAltScreen(), tea.WithContext(ctx), tea.WithFPS(maxFPS), tea.WithOutput(newOutput(w.Output, w.Dumb)),
		tea.WithoutSignalHandler(), // it blocks forever if ctx ends by the same signal
	}
	if w.Input != nil {
		options = append(options, tea.WithInput(w.Input))
	}
	if w.Notifier != nil && !w.Dumb {
		options = append(options, tea.WithReportFocus())
	}
	if w.mouse() {
		options = append(options, tea.WithMouseCellMotion())
	}
	return options
}

// mouse reports whether the screen handles the mouse.
func (w Config) mouse() bool { return !w.NoMouse && !w.Dumb }

// output adapts the output of bubbletea to the terminal. bubbletea writes each frame with one
// Write.
type output struct {
	to   io.Writer
	dumb bool // the terminal knows no modes
}

// newOutput returns the writer for bubbletea. For a terminal file, it is a term.File, so that
// bubbletea can query the window size.
func newOutput(to io.Writer, dumb bool) io.Writer {
	o := output{to, dumb}
	if f, ok := to.(term.File); ok {
		return outputFile{f, o}
	}
	return o
}

// modes matches sequences that set or reset a mode of the terminal.
var modes = regexp.MustCompile(`\x1b\[\?[0-9;]+[hl]`)

// Write writes p as one synchronized update: the terminal shows all of it together. A dumb
// terminal receives p without modes.
func (o output) Write(p []byte) (int, error) {
	text := ansi.SetModeSynchronizedOutput + string(p) + ansi.ResetModeSynchronizedOutput
	if o.dumb {
		text = modes.ReplaceAllString(string(p), "")
	}
	if text == "" {
		return len(p), nil
	}
	if _, err := io.WriteString(o.to, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// outputFile is an output to a file. It is not an *os.File, which bubbletea could write to
// directly.
type outputFile struct {
	term.File
	output output
}

// Write implements io.Writer.
func (f outputFile) Write(p []byte) (int, error) { return f.output.Write(p) }
