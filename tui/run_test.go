package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
)

// These are the sequences that a terminal receives at the start and at the end.
const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
)

// tape is a terminal that records the output.
type tape struct {
	mu  sync.Mutex
	b   bytes.Buffer
	any chan struct{} // closed at the first write
}

func newTape() *tape { return &tape{any: make(chan struct{})} }

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() == 0 {
		close(t.any)
	}
	return t.b.Write(p)
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// wantIntact expects that the terminal has its initial state.
func (t *tape) wantIntact(test *testing.T) {
	test.Helper()
	s := t.String()
	entered := strings.LastIndex(s, enterScreen)
	check.True(test, entered >= 0 && strings.LastIndex(s, leaveScreen) >= entered, "the screen was not left: %q", s)
	check.True(test, strings.LastIndex(s, showCursor) >= strings.LastIndex(s, hideCursor), "the cursor was not shown again: %q", s)
}

// started runs the screen with keys and a tape.
func started(ctx context.Context, w Config) (keys io.Writer, out *tape, done chan error) {
	in, keys := io.Pipe()
	out, done = newTape(), make(chan error, 1)
	w.Input, w.Output = in, out
	go func() { done <- Run(ctx, w) }()
	return keys, out, done
}

func TestQuitRestoresTheTerminal(t *testing.T) {
	for key, want := range map[string]error{"q": nil, "\x03": ErrInterrupted} {
		t.Run(key, func(t *testing.T) {
			keys, out, done := started(t.Context(), testConfig())
			_, err := io.WriteString(keys, key)
			check.NoError(t, err)
			check.ErrorIs(t, <-done, want, "Run returned")
			out.wantIntact(t)
		})
	}
}

func TestTheEndOfTheContextEndsTheScreen(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	looking := make(chan struct{})
	hung := sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
		<-ctx.Done()
		close(looking)
		return keyspace.Snapshot{}, ctx.Err()
	})
	_, out, done := started(ctx, Config{Source: hung})
	<-out.any
	time.AfterFunc(2*tickInterval, stop) // after the first snapshot has begun
	check.ErrorIs(t, <-done, context.Canceled, "Run returned")
	<-looking // its context has ended
	out.wantIntact(t)
}

func TestASignalThatEndsTheContextEndsTheScreen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows a process cannot send itself a signal; run the test on Linux or macOS")
	}
	self := check.Must(os.FindProcess(os.Getpid()))(t)
	for range 10 { // two goroutines receive the signal, in any order
		ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
		_, out, done := started(ctx, Config{Source: sampleServer()})
		<-out.any
		time.Sleep(20 * time.Millisecond) // no order depends on this: a handler of bubbletea, if there were one, is installed by then
		check.NoError(t, self.Signal(syscall.SIGTERM))
		select {
		case err := <-done:
			check.True(t, errors.Is(err, context.Canceled), "Run returned %v", err)
		case <-time.After(10 * time.Second):
			t.Fatal("the screen has not ended")
		}
		out.wantIntact(t)
		stop()
	}
}

// The test runs itself as another process, because bubbletea prints panics to stdout.
func TestAPanicRestoresTheTerminalFirst(t *testing.T) {
	if os.Getenv("LOCKTOP_TEST_PANIC") != "" {
		in, _ := io.Pipe()
		bad := sourceFunc(func(context.Context) (keyspace.Snapshot, error) { panic("at the disco") })
		err := Run(t.Context(), Config{Source: bad, Input: in, Output: os.Stdout})
		os.Stdout.WriteString("Run returned: " + err.Error())
		os.Exit(0)
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAPanicRestoresTheTerminalFirst$")
	cmd.Env = append(os.Environ(), "LOCKTOP_TEST_PANIC=1")
	out, err := cmd.Output()
	check.Require(t, err == nil, "%v: %s", err, out)
	left, said := strings.Index(string(out), leaveScreen), strings.Index(string(out), "at the disco")
	check.True(t, left >= 0 && said >= left, "the screen was left at %d, the panic printed at %d: %q", left, said, out)
	check.True(t, strings.Contains(string(out), "Run returned: run the screen: "), "Run did not report the panic: %q", out)
}

// placing matches the sequences that a dumb terminal receives besides text:
// cursor position and erase.
var placing = regexp.MustCompile(`\x1b\[[0-9;]*[HJK]`)

func TestADumbTerminalGetsTextAlone(t *testing.T) {
	w := testConfig()
	w.Dumb = true
	keys, out, done := started(t.Context(), w)
	_, _ = io.WriteString(keys, "q")
	check.NoError(t, <-done)
	text := out.String()
	drive(t, w, func(d *driver) {
		for _, key := range []string{"1", "2", "4", "5", "6", "?"} {
			text += d.press(key).app.View()
		}
	})
	for _, r := range placing.ReplaceAllString(text, "") {
		if r != '\r' && r != '\n' && (r < ' ' || r > '~' && r < 0x3000) { // keys may be in any script
			t.Fatalf("it was told %q", r)
		}
	}
}

func TestTheMouseIsBackAfterASuspension(t *testing.T) {
	for _, c := range []struct {
		w    Config
		want tea.Msg
	}{{Config{}, tea.EnableMouseCellMotion()}, {Config{NoMouse: true}, nil}, {Config{Dumb: true}, nil}} {
		_, cmd := newApp(t.Context(), c.w).Update(tea.ResumeMsg{})
		var got tea.Msg
		if cmd != nil {
			got = cmd()
		}
		check.True(t, got == c.want, "mouse off %v, dumb %v: the terminal is told %T, want %T", c.w.NoMouse, c.w.Dumb, got, c.want)
	}
}

func TestAFrameIsOneSynchronizedUpdate(t *testing.T) {
	var out strings.Builder
	const frame = "\x1b[Hone\r\ntwo"
	n, err := newOutput(&out, false).Write([]byte(frame))
	check.True(t, n == len(frame) && err == nil, "it took %d of %d bytes, %v", n, len(frame), err)
	want := "\x1b[?2026h" + frame + "\x1b[?2026l"
	check.True(t, out.String() == want, "wrote %q, want %q", out.String(), want)
}

func TestTheOutputToATerminalIsATerminalFile(t *testing.T) {
	out := newOutput(os.Stdout, false)
	f, ok := out.(interface{ Fd() uintptr })
	check.True(t, ok && f.Fd() == os.Stdout.Fd(), "bubbletea cannot ask for the size of the window")
	_, past := out.(io.StringWriter)
	check.False(t, past, "bubbletea can write past us")
}
