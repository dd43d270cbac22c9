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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/recording"
	"locktop/tui/widget"
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
	out, done = &tape{any: make(chan struct{})}, make(chan error, 1)
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
	begun, looking := make(chan struct{}), make(chan struct{})
	hung := sourceFunc(func(ctx context.Context) (keyspace.Snapshot, error) {
		close(begun)
		<-ctx.Done()
		close(looking)
		return keyspace.Snapshot{}, ctx.Err()
	})
	_, out, done := started(ctx, Config{Source: hung})
	<-out.any
	<-begun
	stop()
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
	placing := regexp.MustCompile(`\x1b\[[0-9;]*[HJK]`) // it also gets the position of the cursor, and what to erase
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

// A frame writes only the lines that have changed, and all of them where the terminal may show something else.
func TestAFrameWritesTheLinesThatHaveChanged(t *testing.T) {
	var out strings.Builder
	p := &painter{app: newApp(t.Context(), testConfig()), out: &out}
	written := func(msg tea.Msg) string {
		out.Reset()
		p.Update(msg)
		p.View()
		return out.String()
	}
	size := tea.WindowSizeMsg{Width: 160, Height: 24}
	all := regexp.MustCompile(`\x1b\[\d*;?\d*H`)
	for _, msg := range []tea.Msg{size, tea.ResumeMsg{}, tea.KeyMsg{Type: tea.KeyCtrlL}, size} {
		check.Equal(t, len(all.FindAllString(written(msg), -1)), 24, "lines after %T", msg)
	}
	check.Equal(t, written(nil), "", "of the same frame")
	check.Equal(t, written(tickMsg{time.Unix(1, 0)}), "", "while the answer to its request is due")
	check.Contains(t, written(tickMsg{time.Unix(2, 0)}), ":02", "without an answer")
	help := written(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("!")})
	check.True(t, len(all.FindAllString(help, -1)) == 1 && strings.Contains(help, "! does nothing"), "a notice wrote %q", help)
}

func TestTheOutputToATerminalIsATerminalFile(t *testing.T) {
	out := newOutput(os.Stdout, false)
	f, ok := out.(interface{ Fd() uintptr })
	check.True(t, ok && f.Fd() == os.Stdout.Fd(), "bubbletea cannot ask for the size of the window")
	_, past := out.(io.StringWriter)
	check.False(t, past, "bubbletea can write past us")
}

// notices are the notices that the screen has sent.
type notices []string

func (n *notices) send(text string) error { *n = append(*n, text); return nil }

// endless returns locks that are held without a deadline.
func endless(keys ...string) []keyspace.Lock {
	return mapped(keys, func(key string) keyspace.Lock {
		return keyspace.Lock{Key: key, Format: "f", Holders: []keyspace.Holder{{ID: "tok", Depth: 1}}}
	})
}

// A notice is for a critical finding that is new and that the user cannot see.
func TestANewCriticalFindingIsANoticeOutOfFocus(t *testing.T) {
	server := &fakeServer{locks: endless("old")}
	var to notices
	add := func(d *driver, keys ...string) {
		server.locks = append(slices.Clone(server.locks), endless(keys...)...)
		d.wait(alarmPause / 2)
	}
	drive(t, Config{Source: server, Notifier: to.send}, func(d *driver) {
		d.deliver(tea.FocusMsg{})
		add(d, "seen")
		d.deliver(tea.BlurMsg{})
		d.wait(alarmPause)
		check.Require(t, len(to) == 0, "notices of what was there, or in focus: %q", to)
		add(d, "a\x1b]0;x\a", "b")
		if len(to) != 1 || !strings.HasPrefix(to[0], `a\x1b]0;x\a: Held without a deadline`) && !strings.HasPrefix(to[0], `a\x1b]0;x\x07: Held without a deadline`) || !strings.HasSuffix(to[0], "(and 1 more)") {
			t.Fatalf("notices: %q", to)
		}
	})
	drive(t, Config{Source: server}, func(d *driver) { add(d, "off") })
}

// Two notices are at least 10 s apart. A finding that was gone in between is new again, one that is
// not critical is no notice, and privacy hides the names.
func TestNoticesAreApart(t *testing.T) {
	server, to := &fakeServer{}, notices{}
	drive(t, Config{Source: server, Notifier: to.send}, func(d *driver) {
		show := func(notices int, locks ...keyspace.Lock) {
			t.Helper()
			server.locks = locks
			d.wait(2 * time.Second)
			check.True(t, len(to) == notices, "%d notices, want %d: %q", len(to), notices, to)
		}
		show(0)
		show(1, endless("a", "b")...)
		show(1, endless("a", "c")...)
		show(1, endless("a", "b", "c")...)
		d.wait(alarmPause)
		show(2, endless("a", "b", "c")...)
		check.True(t, strings.HasSuffix(to[1], "(and 1 more)"), "the second notice is %q", to[1])
		d.wait(alarmPause)
		waited := mutex("w", "worker", time.Hour)
		waited.Waiters = []keyspace.Waiter{{ID: "waiter", Since: before(5 * time.Second)}}
		show(2, waited)
		d.want("▲ w").press("p")
		show(3, endless("secret")...)
		check.False(t, strings.Contains(to[2], "secret"), "privacy shows %q", to[2])
		d.wait(alarmPause)
		const ann, bob = "0f6a2b1c-1111-4222-8333-0123456789ab:7", "8743c9c0-1111-4222-8333-0123456789ab:9"
		first, second := mutex("one", ann, time.Hour), mutex("two", bob, time.Hour) // a finding whose text has names
		first.Waiters = []keyspace.Waiter{{ID: bob, Since: after(40 * time.Second)}}
		second.Waiters = []keyspace.Waiter{{ID: ann, Since: after(40 * time.Second)}}
		show(4, first, second)
		check.Contains(t, to[3], "eadlock")
		check.False(t, slices.ContainsFunc([]string{ann, bob, "two"}, func(name string) bool { return strings.Contains(to[3], name) }),
			"privacy shows %q", to[3])
	})
}

// What was critical when it was recorded is no reason for a notice.
func TestAPlaybackSendsNoNotices(t *testing.T) {
	r := writeRecording(t, false, func(t *testing.T, w *recording.Writer) {
		for second := range 20 {
			snap := keyspace.Snapshot{At: after(time.Duration(second) * time.Second), Complete: true}
			if second > 5 {
				snap.Locks = []*keyspace.Lock{&endless("a")[0]}
			}
			check.NoError(t, w.Add(snap))
		}
	})
	to, play := notices{}, &fakePlayer{reader: r, playing: PlaybackState{At: after(0), Speed: 1}}
	drive(t, Config{Source: play, Player: play, Notifier: to.send}, func(d *driver) {
		d.wait(time.Second).wantNot("without a deadline")
		play.playing.At = after(10 * time.Second)
		d.wait(time.Second).want("1 finding")
	})
	check.True(t, len(to) == 0, "notices: %q", to)
}

func TestCommandsChangeTheColoursAndTheCharacters(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		for _, text := range []string{"theme light", "glyphs ascii"} {
			d.press(":").enter(text).press("enter")
		}
		light := themeNamed("light", d.app.screen.renderer)
		check.True(t, d.app.screen.theme.bad == light.bad && d.app.screen.glyphs.Alert == widget.ASCII().Alert, "the commands changed nothing")
	})
}
