package tui

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// terminal renders each frame immediately. bubbletea would render at the ticks of a timer: slow
// ticks delay keys, and fast ticks use CPU on an idle screen. Therefore bubbletea only sets up
// and restores the terminal, and terminal discards its frames.
//
// If frames arrive faster than the output accepts them, only the newest is rendered. All
// methods are safe for concurrent use.
type terminal struct {
	out  io.Writer
	dumb bool                    // write only text and cursor positions
	next atomic.Pointer[drawing] // newest frame
	wake chan struct{}           // a frame is waiting; closed by close
	over chan struct{}

	mu    sync.Mutex
	ours  bool    // the alternate screen is active
	shown drawing // frame on the screen; empty if unknown
}

// drawing is a frame for a window w cells wide.
type drawing struct {
	lines []string
	w     int
}

// newTerminal returns a terminal that writes to out until close.
func newTerminal(out io.Writer) *terminal {
	t := &terminal{out: out, wake: make(chan struct{}, 1), over: make(chan struct{})}
	go t.paint()
	return t
}

// close waits for the last write.
func (t *terminal) close() {
	close(t.wake)
	<-t.over
}

// show renders a frame of w cells per line. It does not block.
func (t *terminal) show(text string, w int) {
	t.next.Store(&drawing{strings.Split(text, "\n"), w})
	select {
	case t.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// paint renders frames until close. It runs in its own goroutine.
func (t *terminal) paint() {
	defer close(t.over)
	for range t.wake {
		t.mu.Lock()
		if next := *t.next.Load(); t.ours && t.put(next) == nil {
			t.shown = next
		}
		t.mu.Unlock()
	}
}

// put writes the lines that changed, as one synchronized update.
func (t *terminal) put(next drawing) error {
	var b bytes.Buffer
	same := next.w == t.shown.w && len(next.lines) == len(t.shown.lines)
	for i, line := range next.lines {
		if !same || line != t.shown.lines[i] {
			b.WriteString(ansi.CursorPosition(1, i+1))
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	text := beginFrame + b.String() + endFrame
	if t.dumb {
		text = b.String()
	}
	_, err := io.WriteString(t.out, text)
	return err
}

// Sequences that bubbletea writes at the start, at the end and before each frame.
const (
	enterScreen = ansi.SetModeAltScreenSaveCursor
	leaveScreen = ansi.ResetModeAltScreenSaveCursor
	home        = ansi.CursorHomePosition
)

// A terminal shows the output between these sequences as one update, or ignores the sequences.
const (
	beginFrame = ansi.SetModeSynchronizedOutput
	endFrame   = ansi.ResetModeSynchronizedOutput
)

// modes matches sequences that set or reset a mode of the terminal.
var modes = regexp.MustCompile(`\x1b\[\?[0-9;]+[hl]`)

// plainly adapts bubbletea's output to a dumb terminal. The last frame stays on the screen at
// the end.
func (t *terminal) plainly(s string) string {
	if strings.Contains(s, leaveScreen) {
		return ansi.CursorPosition(1, max(1, len(t.shown.lines))) + "\r\n"
	}
	return modes.ReplaceAllString(s, "")
}

// Write forwards bubbletea's output except for its frames.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := string(p)
	switch {
	case len(s) > len(home) && strings.HasPrefix(s, home):
		return len(p), nil
	case strings.Contains(s, enterScreen):
		t.ours, t.shown = true, drawing{}
	case strings.Contains(s, leaveScreen):
		t.ours = false
	case strings.Contains(s, ansi.EraseEntireScreen):
		t.shown = drawing{} // draw all lines of the next frame
	}
	if t.dumb {
		s = t.plainly(s)
	}
	if s == "" {
		return len(p), nil
	}
	_, err := io.WriteString(t.out, s)
	return len(p), err
}

// forBubbletea returns the writer for bubbletea. For a terminal file, it is a term.File, so
// that bubbletea can query the window size.
func (t *terminal) forBubbletea() io.Writer {
	if f, ok := t.out.(term.File); ok {
		return terminalFile{f, t}
	}
	return t
}

// terminalFile is a term.File that writes through terminal. It is not an *os.File, which
// bubbletea could write to directly.
type terminalFile struct {
	term.File
	t *terminal
}

func (f terminalFile) Write(p []byte) (int, error) { return f.t.Write(p) }

// canvas is the bubbletea model. Its View renders through terminal and returns nothing.
type canvas struct {
	*app
	terminal *terminal
}

// Update implements tea.Model.
func (c canvas) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	_, cmd := c.app.Update(msg)
	return c, cmd
}

// View implements tea.Model.
func (c canvas) View() string {
	if text := c.app.View(); text != "" {
		c.terminal.show(text, c.app.w)
	}
	return ""
}
