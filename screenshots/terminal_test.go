package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// terminalFor runs a shell script in a terminal that is closed at the end of
// the test.
func terminalFor(t *testing.T, script string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not on PATH: install it (apt-get install tmux, brew install tmux) to run this test")
	}
	term, err := openTerminal(t.Context(), filepath.Join(t.TempDir(), "tmux"), []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(term.close)
	return term
}

func TestTerminalHasTheSizeAndAllColours(t *testing.T) {
	t.Setenv("CI", "true")
	t.Setenv("NO_COLOR", "1")
	term := terminalFor(t, `stty size; echo "CI=$CI. NO_COLOR=$NO_COLOR. COLORTERM=$COLORTERM."; read line`)
	want := fmt.Sprintf(`%d %d\s+CI=\. NO_COLOR=\. COLORTERM=truecolor\.`, rows, columns)
	if err := term.waitFor(t.Context(), want); err != nil {
		t.Error(err)
	}
}

func TestKeysReachTheProgramAndColoursTheCapture(t *testing.T) {
	term := terminalFor(t, `read line; printf '\033[38;2;1;2;3m%s' "$line"; read line`)
	if err := term.press(t.Context(), []string{"h", "i", "Enter"}); err != nil {
		t.Fatal(err)
	}
	if err := term.waitFor(t.Context(), `hi\s+hi`); err != nil {
		t.Fatal(err)
	}
	text, err := term.capture(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\x1b[38;2;1;2;3mhi") {
		t.Errorf("the capture is %q", text)
	}
}

func TestWaitForReportsAProgramThatEnded(t *testing.T) {
	term := terminalFor(t, `echo no such luck; read line`)
	if err := term.waitFor(t.Context(), `luck`); err != nil { // tmux may lose the last output of a program
		t.Fatal(err)
	}
	if err := term.press(t.Context(), []string{"Enter"}); err != nil {
		t.Fatal(err)
	}
	err := term.waitFor(t.Context(), `never`)
	if err == nil || !strings.Contains(err.Error(), "the program ended") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("the error is %v", err)
	}
}

func TestWaitForEndsWithTheContextAndRejectsABadPattern(t *testing.T) {
	term := terminalFor(t, `read line`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.waitFor(ctx, `never`); err == nil {
		t.Error("a cancelled wait found something")
	}
	if err := term.waitFor(t.Context(), `(`); err == nil || !strings.Contains(err.Error(), "missing closing") {
		t.Errorf("a bad pattern says %v", err)
	}
}

func TestAProgramThatFailsIsReportedWithItsOutput(t *testing.T) {
	if err := run(t.Context(), "sh", "-c", "echo no such luck; exit 1"); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("the error is %v", err)
	}
}
