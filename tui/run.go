package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/muesli/termenv"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/witness"
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
	Clipboard  func(string) error // receives copied text
	Frames     FrameSaver
	Player     Player            // nil in a live view
	Keys       map[string]string // changed keys of actions; CheckKeys must accept them with Commands
	Commands   []RowCommand      // commands on a lock
	Runner     Runner            // nil only if there are no Commands
	Notifier   Notifier          // nil if the user is never notified

	Title   string          // the connected server, without credentials
	Every   time.Duration   // time between two requests; minimum and default 250 ms
	Theme   string          // one of Themes; default "system"
	Colours termenv.Profile // colours of the terminal; default all
	Glyphs  string          // one of widget.GlyphSets; default "block"
	NoMouse bool            // do not capture the mouse
	Dumb    bool            // the terminal can only move its cursor: no styles, modes or alternate screen
	Input   io.Reader
	Output  io.Writer
}

// ErrInterrupted is the error of Run after Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the user quits or ctx ends. It restores the terminal, and leaves
// the last frame on it if the user asks for that. It returns nil after quit, ErrInterrupted
// after Ctrl-C, and ctx's error after ctx ends. Run handles no signals: the caller ends ctx.
func Run(ctx context.Context, w Config) error {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	a := newApp(looking, w)
	var gone atomic.Bool
	if f, ok := w.Output.(term.File); ok && term.IsTerminal(f.Fd()) {
		go untilGone(looking, f, func() { gone.Store(true); stop() })
	}
	out := newOutput(w.Output, w.Dumb)
	_, err := tea.NewProgram(&painter{app: a, out: out}, options(looking, w, out)...).Run()
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

// painter is the model that bubbletea runs: the app, whose frames it writes at once. bubbletea's own renderer looks for
// a new frame at a fixed frequency: a key would wait for it, and an idle screen would wake the processor up as often.
type painter struct {
	*app
	out   io.Writer
	shown []string // the lines on the terminal
	waits bool     // for the answer to a request that has just begun
}

// Update implements tea.Model.
func (p *painter) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	_, cmd := p.app.Update(msg)
	_, ticks := msg.(tickMsg)
	p.waits = ticks && p.refresher.busy && p.refresher.asked.Equal(p.now)
	return p, cmd
}

// View implements tea.Model: it writes the lines that have changed. It returns the first line, because bubbletea's
// renderer writes something, too.
func (p *painter) View() string {
	if p.waits && len(p.shown) > 0 {
		return p.shown[0]
	}
	lines := strings.Split(p.app.View(), "\n")
	if p.repaint || len(lines) != len(p.shown) {
		p.shown, p.repaint = make([]string, len(lines)), false
	}
	var changed strings.Builder
	for i, line := range lines {
		if line != p.shown[i] {
			changed.WriteString(ansi.CursorPosition(1, i+1) + line)
		}
	}
	if p.shown = lines; changed.Len() > 0 {
		_, _ = io.WriteString(p.out, changed.String()) // untilGone finds out that the terminal is gone
	}
	return lines[0]
}

func options(ctx context.Context, w Config, out io.Writer) []tea.ProgramOption {
	options := []tea.ProgramOption{
		tea.WithInput(w.Input), tea.WithOutput(out), tea.WithAltScreen(), tea.WithContext(ctx), tea.WithFPS(1), // the lowest frequency: see painter
		tea.WithoutSignalHandler(), // it blocks forever if ctx ends by the same signal
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

// output adapts the output to the terminal. Each frame is one Write.
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

// Source delivers snapshots.
type Source interface {
	// Snapshot returns the newest snapshot. It blocks until there is one or ctx ends. The
	// screen does not call it concurrently.
	Snapshot(context.Context) (keyspace.Snapshot, error)
}

// Load is the load generator. All methods are safe for concurrent use. A nil Load means that
// there is no server for a load.
type Load interface {
	Start() error                 // starts the clients, also after Stop
	Stop() error                  // stops all clients and releases their locks
	Apply(loadgen.Scenario) error // changes the scenario, also of a running load
	Inject(loadgen.Fault) error   // injects a fault now
	Check(loadgen.Scenario) error // returns an error if its servers or its agents cannot run the scenario
	Metrics() loadgen.Metrics
	Events(seen uint64) []loadgen.Event // events after number seen
	Scenario() loadgen.Scenario
	Beside() []loadgen.Compared // runs to compare this one with
}

// AgentLoad is a Load whose clients run in other processes, the agents.
type AgentLoad interface {
	Load
	Agents() []loadgen.AgentState // of the newest start, by number, also while it waits for them
	Incomplete() []string         // reasons why the figures are not complete
	Witness() *witness.Results    // nil if there is no witness
}

// Loader opens a load on the current server after the user has confirmed it.
type Loader func(context.Context) (Load, error)

// Executor changes locks of other clients. It changes a lock only if the lock is unchanged since
// the snapshot, and audits every change. With a nil Executor, the screen is read-only.
type Executor interface {
	Act(ctx context.Context, what keyspace.Action, seen keyspace.Lock, ttl time.Duration) (keyspace.AuditRecord, error)
	// Recheck reads a lock again after an action with the outcome Unanswered, until its servers answer
	// or ctx ends. It returns what it has found, also as a sentence.
	Recheck(context.Context, keyspace.AuditRecord, keyspace.Lock) (keyspace.Outcome, string, error)
	Refused(context.Context) string // why no action is possible; "" = it is, or that is not known
}

// Writer switches whether the screen may act, and returns its Executor from then on.
type Writer func(ctx context.Context, on bool) (Executor, error)

// Connector connects to other locks of the same servers, and returns the Config for them. It
// invalidates the sources in earlier Configs.
type Connector func(context.Context, Target) (Config, error)

// Target selects locks. An empty field keeps its value.
type Target struct {
	DB    string // a number, or "all"
	Match string // a glob for keys; * matches all
}

// Store returns the existing keys of a lock from its servers, the lock's own key first, and why those of
// a server are not known. It cuts long values.
type Store func(context.Context, keyspace.Lock) []RawEntry

// Finder finds the clients that hold locks. With a nil Finder, the screen does not look for
// them.
type Finder interface {
	// Clients lists the clients of the server that has a lock, without those of locktop. If they are
	// too many, it lists only those with the known IDs, and all is false.
	Clients(ctx context.Context, l keyspace.Lock, known []int64) (list []keyspace.Client, all bool, err error)
	// WatchHolder watches a lock until the client of a holder is named by coincidence, or
	// until ctx ends, which is not an error. others are further locks of the same owner.
	WatchHolder(ctx context.Context, l keyspace.Lock, h keyspace.Holder, others []*keyspace.Lock) (keyspace.Suspicion, error)
}

// RawEntry is a key on one server, or the reason for which the server may have keys that are not known.
type RawEntry struct {
	Node  string
	Entry keyspace.Entry
	Err   error // nil: Entry was read
}

// Runner returns the run of a program of the user, with its arguments, in the terminal in place of
// the screen. The run ends with ctx.
type Runner func(ctx context.Context, args []string) tea.ExecCommand

// Notifier draws the user's attention to a terminal that is not in focus, by a text of one line
// without control characters.
type Notifier func(text string) error

// FrameSaver writes a new file for the user and returns its path. It never overwrites a file: it
// derives a unique name from name, such as "frame.svg", and keeps the extension.
type FrameSaver func(name string, data []byte) (where string, err error)

// Player controls the playback of a recording, which is also the Source. All methods are safe
// for concurrent use. A nil Player means a live view.
type Player interface {
	Pause(on bool)
	Seek(to time.Time) // time of the recording, limited to its first and last moment
	SetSpeed(factor float64)
	Playing() PlaybackState
}

// PlaybackState is the state of a Player.
type PlaybackState struct {
	At, First, Last time.Time // times of the recording
	Speed           float64
	Paused          bool
	Damage          string // what is wrong with the recording, "" if nothing is

	GapFrom, GapUntil time.Time // nothing was recorded in between, and the last snapshot is of GapFrom; zero: no gap
}
