package tui

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestAFrameIsOneSynchronizedUpdate(t *testing.T) {
	var out strings.Builder
	const frame = "\x1b[Hone\r\ntwo"
	if n, err := newOutput(&out, false).Write([]byte(frame)); n != len(frame) || err != nil {
		t.Errorf("it took %d of %d bytes, %v", n, len(frame), err)
	}
	if want := "\x1b[?2026h" + frame + "\x1b[?2026l"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

func TestATerminalIsStillKnownForOne(t *testing.T) {
	out := newOutput(os.Stdout, false)
	if f, ok := out.(interface{ Fd() uintptr }); !ok || f.Fd() != os.Stdout.Fd() {
		t.Error("bubbletea cannot ask for the size of the window")
	}
	if _, ok := out.(io.StringWriter); ok {
		t.Error("bubbletea can write past us")
	}
}
