package tui

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// screenOf calls drive with a terminal and returns what was written to it.
func screenOf(t *testing.T, drive func(*terminal)) string {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		term := newTerminal(&b)
		drive(term)
		synctest.Wait()
		term.close()
	})
	return b.String()
}

// says writes to a terminal as bubbletea does.
func says(t *testing.T, term io.Writer, s string) {
	t.Helper()
	if n, err := io.WriteString(term, s); n != len(s) || err != nil {
		t.Errorf("it took %d of %d bytes, %v", n, len(s), err)
	}
}

func TestAFrameIsWrittenAtOnceAndThenWhatHasChanged(t *testing.T) {
	got := screenOf(t, func(term *terminal) {
		says(t, term, enterScreen)
		for _, frame := range []string{"aa\nbb\ncc", "aa\nBB\ncc", "aa\nBB\ncc"} {
			term.show(frame, 2)
			synctest.Wait()
		}
		term.show("aaa\nBB \ncc ", 3) // another window size: the terminal's contents are unknown
	})
	want := enterScreen +
		beginFrame + "\x1b[Haa\x1b[2;1Hbb\x1b[3;1Hcc" + endFrame +
		beginFrame + "\x1b[2;1HBB" + endFrame +
		beginFrame + "\x1b[Haaa\x1b[2;1HBB \x1b[3;1Hcc " + endFrame
	if got != want {
		t.Errorf("wrote %q\n want %q", got, want)
	}
}

func TestBubbleteaSetsTheTerminalUpAndDrawsNothing(t *testing.T) {
	got := screenOf(t, func(term *terminal) {
		for _, s := range []string{enterScreen, home, "\x1b[?25l", home + "a frame of its own", leaveScreen} {
			says(t, term, s)
		}
	})
	if want := enterScreen + home + "\x1b[?25l" + leaveScreen; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestNothingIsDrawnButOnAScreenOfOurs(t *testing.T) {
	got := screenOf(t, func(term *terminal) {
		term.show("before", 6)
		synctest.Wait()
		for range 2 { // with a suspend in between
			says(t, term, enterScreen)
			term.show("ours", 4)
			synctest.Wait()
			says(t, term, leaveScreen)
			term.show("after", 5)
			synctest.Wait()
		}
	})
	once := enterScreen + beginFrame + "\x1b[Hours" + endFrame + leaveScreen
	if got != once+once {
		t.Errorf("wrote %q, want %q twice", got, once)
	}
}

// slowLine is a terminal with a slow connection. A write returns when the test
// allows it.
type slowLine struct {
	got  bytes.Buffer
	take chan struct{}
}

func (s *slowLine) Write(p []byte) (int, error) {
	<-s.take
	return s.got.Write(p)
}

func TestASlowTerminalSkipsFramesAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &slowLine{take: make(chan struct{}, 1)}
		line.take <- struct{}{}
		term := newTerminal(line)
		says(t, term, enterScreen)
		for _, frame := range []string{"1", "2", "3", "4"} {
			term.show(frame, 1) // returns while the connection is blocked
			synctest.Wait()
		}
		close(line.take)
		synctest.Wait()
		term.close()
		if got, want := strings.Count(line.got.String(), beginFrame), 2; got != want || !strings.Contains(line.got.String(), "H4") {
			t.Errorf("%d frames were written, want the first and the last: %q", got, line.got.String())
		}
	})
}

func TestATerminalIsStillKnownForOne(t *testing.T) {
	term := newTerminal(os.Stdout)
	defer term.close()
	out := term.forBubbletea()
	if f, ok := out.(interface{ Fd() uintptr }); !ok || f.Fd() != os.Stdout.Fd() {
		t.Error("bubbletea cannot ask for the size of the window")
	}
	if _, ok := out.(io.StringWriter); ok {
		t.Error("bubbletea can write past us")
	}
}
