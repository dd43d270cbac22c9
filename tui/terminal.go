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

// terminal shows frames as soon as they are made. bubbletea would show them at the
// ticks of a clock: a key then waits for the next one, and a clock that is quick
// enough costs an idle screen more than all its work. So bubbletea sets the
// terminal up and puts it back, and what it would draw itself is left out.
//
// Frames that come faster than the terminal takes them are passed over but for
// the last. It is safe for concurrent use.
type terminal struct {
	out  io.Writer
	dumb bool                    // it is told nothing but where the cursor goes
	next atomic.Pointer[drawing] // made last
	wake chan struct{}           // there is one, or it is over
	over chan struct{}

	mu    sync.Mutex
	ours  bool    // between entering and leaving the screen
	shown drawing // what is on it; none: nobody knows
}

// drawing is a frame, for a window of this width.
type drawing struct {
	lines []string
	w     int
}

// newTerminal returns a terminal that writes to out until it is closed.
func newTerminal(out io.Writer) *terminal {
	t := &terminal{out: out, wake: make(chan struct{}, 1), over: make(chan struct{})}
	go t.paint()
	return t
}

// close returns when nothing will be written any more.
func (t *terminal) close() {
	close(t.wake)
	<-t.over
}

// show hands over a frame as wide as the window.
func (t *terminal) show(text string, w int) {
	t.next.Store(&drawing{strings.Split(text, "\n"), w})
	select {
	case t.wake <- struct{}{}:
	default: // it has not got to the one before
	}
}

// paint is the terminal's goroutine.
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

// put writes the lines that differ from those on the screen. Terminals that know
// how to show them only when all are there.
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

// What bubbletea writes to begin and to end our time, and before each frame.
const (
	enterScreen = ansi.SetModeAltScreenSaveCursor
	leaveScreen = ansi.ResetModeAltScreenSaveCursor
	home        = ansi.CursorHomePosition
)

// Between these, terminals that know them show nothing; all others ignore them.
const (
	beginFrame = ansi.SetModeSynchronizedOutput
	endFrame   = ansi.ResetModeSynchronizedOutput
)

// modes are sequences that switch something on or off in a terminal.
var modes = regexp.MustCompile(`\x1b\[\?[0-9;]+[hl]`)

// plainly is what a dumb terminal is told of a text that bubbletea writes. The last
// frame stays on it when the screen is left.
func (t *terminal) plainly(s string) string {
	if strings.Contains(s, leaveScreen) {
		return ansi.CursorPosition(1, max(1, len(t.shown.lines))) + "\r\n"
	}
	return modes.ReplaceAllString(s, "")
}

// Write passes on what bubbletea writes, but for its frames.
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
		t.shown = drawing{} // and shown again with the next frame
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

// forBubbletea returns what bubbletea is to write to. If it goes to a file it is
// one, so that bubbletea can ask it for the size of the window.
func (t *terminal) forBubbletea() io.Writer {
	if f, ok := t.out.(term.File); ok {
		return terminalFile{f, t}
	}
	return t
}

// terminalFile is a terminal that is a file, but not an os.File: to that there is
// a way to write past us.
type terminalFile struct {
	term.File
	t *terminal
}

func (f terminalFile) Write(p []byte) (int, error) { return f.t.Write(p) }

// canvas is the app as bubbletea sees it: there is nothing to be drawn, for it was
// shown already.
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
