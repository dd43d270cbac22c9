package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/aymanbagabas/go-osc52/v2"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/tui"
	"locktop/tui/widget"
)

// screenFlags holds the flags for the appearance of the screen.
type screenFlags struct {
	theme, glyphs string
	noMouse       bool
	notify        bool
	every         time.Duration

	configured *connect.Configuration // its keys and commands; set by check
}

func (a *screenFlags) flags() *pflag.FlagSet {
	set := flagSection("Screen")
	set.StringVar(&a.theme, "theme", "", "`name` of the colour theme: "+strings.Join(tui.Themes(), ", "))
	set.StringVar(&a.glyphs, "glyphs", "", "`name` of the set of characters for drawing: "+strings.Join(widget.GlyphSets(), ", "))
	set.DurationVar(&a.every, "refresh", 250*time.Millisecond, "`time` between two reads of the locks")
	set.BoolVar(&a.noMouse, "no-mouse", false, "do not use the mouse")
	set.BoolVar(&a.notify, "notify", false, "ring the bell and send a notice to the desktop (OSC 9, OSC 777) on a new critical finding while the terminal is not in focus")
	return set
}

// check returns an error for an unknown name, and for keys and commands of the configuration that
// cannot work.
func (a *screenFlags) check() (err error) {
	if a.configured, err = connect.ReadConfiguration(); err != nil {
		return err
	}
	if err := checkKeys(a.configured); err != nil {
		return err
	}
	if a.theme != "" && !slices.Contains(tui.Themes(), a.theme) {
		return usageErrorf("there are "+strings.Join(tui.Themes(), ", "), "unknown theme %q", a.theme)
	}
	if a.glyphs != "" && !slices.Contains(widget.GlyphSets(), a.glyphs) {
		return usageErrorf("there are "+strings.Join(widget.GlyphSets(), ", "), "unknown glyphs %q", a.glyphs)
	}
	if a.every < 250*time.Millisecond {
		return usageErrorf("", "--refresh: at least 250ms")
	}
	return nil
}

// applyTo sets the appearance in w. Without a flag the terminal decides: no colour
// under NO_COLOR, ASCII without colour if the locale is not UTF-8, and no styles if
// TERM is dumb.
func (a *screenFlags) applyTo(w *tui.Config) {
	w.Theme, w.Glyphs, w.NoMouse, w.Every = a.theme, a.glyphs, a.noMouse, a.every
	w.Dumb = os.Getenv("TERM") == "dumb"
	// As the environment names them: at least 16, because terminals without colours ignore them.
	w.Colours = min(termenv.NewOutput(os.Stdout, termenv.WithUnsafe()).ColorProfile(), termenv.ANSI)
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	ascii := locale != "" && !strings.Contains(strings.ReplaceAll(strings.ToLower(locale), "-", ""), "utf8")
	if w.Theme == "" && (ascii || os.Getenv("NO_COLOR") != "") {
		w.Theme = "mono"
	}
	if w.Glyphs == "" && ascii {
		w.Glyphs = "ascii"
	}
}

// screenRun is a run of a command with the screen.
type screenRun struct {
	*program
	flags     connect.Flags
	selection selection
	look      screenFlags
	monitor   monitorFlag
}

// check returns an error for flags that are wrong.
func (r *screenRun) check() error { return errors.Join(r.selection.check(), r.look.check()) }

// run shows the screen for the servers of the flags.
func (r *screenRun) run(ctx context.Context, may writeFlags, own *ownLoad) error {
	c := &r.flags
	if _, err := applyContext(c, &r.selection, &r.look, &may); err != nil {
		return err
	}
	if err := errors.Join(r.check(), may.check(c)); err != nil {
		return err
	}
	wanted := own.enabled || own.options.exec != "" || own.options.control != "" || own.options.agents != 0
	if err := own.refusal(c, may); wanted && err != nil {
		return err
	}
	if err := r.needsTerminal(); err != nil {
		return err
	}
	if may.write {
		c.PreferReplica = false // what will be changed is read where it is changed
	}
	t, err := r.connect(ctx, c)
	if err != nil {
		return err
	}
	g := &connector{session: r.session, connection: c, selection: r.selection, writeFlags: may, monitor: r.monitor, target: t}
	defer g.close()
	if may.write {
		if _, err := g.allowWrite(ctx, true); err != nil {
			return err
		}
	}
	w, err := g.config(ctx, t)
	if err != nil {
		return err
	}
	own.connection = c
	if own.refusal(c, may) == nil {
		w.Loader = own.Open
		w.Scenes = own.scenes(c)
		for _, node := range nodes(c, c.Redlock) {
			if addr, _, err := node.Server(); err == nil && len(c.Redlock) > 0 {
				w.Quorum = append(w.Quorum, addr)
			}
		}
		defer own.close()
	}
	if own.enabled {
		if w.Load, err = own.Open(ctx); err != nil {
			return err
		}
	}
	return r.show(ctx, w)
}

// show shows w until the user quits or ctx ends.
func (r *screenRun) show(ctx context.Context, w tui.Config) error {
	r.look.applyTo(&w)
	w.Keys, w.Commands = r.look.configured.Keys, rowCommands(r.look.configured)
	w.Input, w.Output = r.in, r.out
	w.Clipboard, w.Frames, w.Runner = r.copyText, saveFrame, r.userCommand
	if w.Formats == nil {
		w.Formats = formats.All()
	}
	if r.look.notify {
		w.Notifier = r.notify
	}
	defer collectAt(screenGCPercent)()
	if err := tui.Run(ctx, w); err != nil {
		return err
	}
	return ctx.Err()
}

// needsTerminal returns an error unless input and output are terminals.
func (r *screenRun) needsTerminal() error {
	if !isTerminal(r.in) || !isTerminal(r.out) {
		return usageErrorf("locktop list and locktop watch work everywhere", "the screen needs a terminal")
	}
	return nil
}

// connector connects the screen to another database of the same servers or to other
// key patterns. It closes the previous target.
type connector struct {
	session    *connect.Session
	connection *connect.Flags
	selection  selection
	writeFlags writeFlags
	monitor    monitorFlag
	log        *auditLog

	mu     sync.Mutex
	target *connect.Target
}

// Connect implements [tui.Connector].
func (g *connector) Connect(ctx context.Context, v tui.Target) (tui.Config, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, s := g.connection, g.selection
	if v.DB != "" {
		var err error
		if c, err = c.WithDatabase(v.DB); err != nil {
			return tui.Config{}, err
		}
	}
	if v.Match != "" {
		s.scan.Match = nil
		if v.Match != "*" {
			s.scan.Match = []string{v.Match}
		}
	}
	if err := g.writeFlags.check(c); err != nil {
		return tui.Config{}, err
	}
	t, err := g.session.Open(ctx, c, connect.Prompt{})
	if err != nil {
		return tui.Config{}, err
	}
	g.replace(t)
	g.connection, g.selection = c, s
	return g.config(ctx, t)
}

// allowWrite implements [tui.Writer].
func (g *connector) allowWrite(_ context.Context, on bool) (tui.Executor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writeFlags.write = on; !on {
		return nil, nil
	}
	err := g.writeFlags.check(g.connection)
	if err == nil && g.connection.PreferReplica {
		err = errors.New("with --prefer-replica the screen reads replicas, and actions change masters")
	}
	if err == nil && g.log == nil {
		g.log, err = openAudit(g.writeFlags.auditLog)
	}
	if g.writeFlags.write = err == nil; err != nil {
		return nil, err
	}
	return executorOf(g.target, g.log, &g.selection), nil
}

// replace replaces the target and closes the previous one.
func (g *connector) replace(t *connect.Target) {
	if g.target != nil {
		g.target.Close()
	}
	g.target = t
}

// config returns the configuration of the screen for a target.
func (g *connector) config(ctx context.Context, t *connect.Target) (tui.Config, error) {
	s := g.selection
	s.scan.OwnReads, s.scan.Rescans = new(inspect.OwnReads), new(atomic.Int64)
	options := s.optionsOf(t)
	source, err := g.monitor.monitored(ctx, &reading{selection: s, target: t}, s.watchOf(t, options))
	if err != nil {
		return tui.Config{}, err
	}
	w := tui.Config{
		Source: s.selected(source), Store: s.storedOn(t.ClientOf),
		Finder: &clientFinder{target: t, options: options}, Formats: s.formats(),
		Title: t.Title, Connector: g.Connect, RedisCLI: t.RedisCLI(),
		Writer: g.allowWrite, Production: g.writeFlags.production, Rescan: func() { s.scan.Rescans.Add(1) },
	}
	if g.writeFlags.write {
		w.Executor = executorOf(t, g.log, &s)
	}
	return w, nil
}

// close closes the current target.
func (g *connector) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replace(nil)
	if g.log != nil {
		_ = g.log.close()
	}
}

// tmuxAnswers is the time that tmux has to accept a text.
const tmuxAnswers = time.Second

// copyText puts a text into the clipboard of the user's terminal, also over SSH, by an
// escape sequence (OSC 52). Some terminals ignore the sequence.
//
// By default tmux ignores the sequence and does not pass it to its terminal.
// copyText therefore loads the text into a buffer of tmux, which tmux sends to its
// terminal. If tmux does not answer, copyText sends both forms of the sequence: at
// most one of them takes effect.
func (o output) copyText(text string) error {
	sequence := osc52.New(text)
	send := sequence.String()
	switch {
	case os.Getenv("TMUX") != "" && loadBuffer(text) == nil:
		return nil
	case os.Getenv("TMUX") != "":
		send += sequence.Tmux().String()
	case os.Getenv("STY") != "":
		send = sequence.Screen().String()
	}
	// One write, so that no frame comes between the parts.
	if _, err := io.WriteString(o.out, send); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// loadBuffer makes text the newest buffer of tmux and the clipboard of its
// terminal. The text goes through a pipe, because other users can read arguments.
func loadBuffer(text string) error {
	ctx, stop := context.WithTimeout(context.Background(), tmuxAnswers)
	defer stop()
	cmd := exec.CommandContext(ctx, "tmux", "load-buffer", "-w", "-")
	cmd.Stdin = strings.NewReader(text)
	return cmd.Run()
}

// saveFrame implements [tui.FrameSaver]: it writes a new file in the current folder, named after the
// time. Only its owner can read the file, because a frame may show secrets.
func saveFrame(name string, data []byte) (string, error) {
	stamp := time.Now().Format("20060102-150405")
	for n := range 100 {
		mark := ""
		if n > 0 {
			mark = fmt.Sprintf("-%d", n)
		}
		path := "locktop-" + stamp + mark + filepath.Ext(name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
		return path, nil
	}
	return "", fmt.Errorf("save: 100 files of this second exist already")
}

// userCommand implements [tui.Runner].
func (p *program) userCommand(ctx context.Context, args []string) tea.ExecCommand {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.in, p.out, p.out
	return &userProgram{Cmd: cmd, program: p, ctx: ctx}
}

// userProgram is a run of a program of the user. It has the terminal itself, and not what
// bubbletea would give it.
type userProgram struct {
	*exec.Cmd
	program *program
	ctx     context.Context
}

func (*userProgram) SetStdin(io.Reader)  {}
func (*userProgram) SetStdout(io.Writer) {}
func (*userProgram) SetStderr(io.Writer) {}

// Run runs the program, and waits for Enter so that its output can be read. Meanwhile, Ctrl-C
// ends the program and not locktop.
func (u *userProgram) Run() error {
	u.program.interrupts.Store(true)
	defer u.program.interrupts.Store(false)
	err := u.Cmd.Run()
	ended := "it has ended"
	if err != nil {
		ended = widget.Plain(err.Error())
	}
	fmt.Fprintf(u.program.out, "\n%s: press Enter to return to locktop ", ended)
	enter := make(chan struct{})
	go func() { // a blocked read cannot be cancelled: without Enter, it lives until locktop ends
		_, _ = bufio.NewReader(u.program.in).ReadString('\n')
		close(enter)
	}()
	select {
	case <-enter:
	case <-u.ctx.Done():
	}
	return err
}

// notify rings the bell of the terminal, also over SSH, and sends the text as a notice to the desktop
// by OSC 9 and OSC 777. A terminal ignores the sequences that it does not know. Within tmux they reach
// its terminal only with allow-passthrough; tmux shows the bell.
func (o output) notify(text string) error {
	text = "locktop: " + strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return -1
		case r == ';': // separates the parts of OSC 777
			return ','
		}
		return r
	}, text)
	sequence := ansi.Notify(text) + "\x1b]777;notify;locktop;" + text + "\a"
	switch {
	case os.Getenv("TMUX") != "":
		sequence = ansi.TmuxPassthrough(sequence)
	case os.Getenv("STY") != "":
		sequence = ""
	}
	if _, err := io.WriteString(o.out, "\a"+sequence); err != nil { // one write, so that no frame comes between
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
