package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"locktop/internal/check"
)

// terminalFor runs a shell script in a terminal that is closed at the end of
// the test.
func terminalFor(t *testing.T, script string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not on PATH: install it (apt-get install tmux, brew install tmux) to run this test")
	}
	term := check.Must(openTerminal(t.Context(), filepath.Join(t.TempDir(), "tmux"), []string{"sh", "-c", script}))(t)
	t.Cleanup(term.close)
	return term
}

func TestTerminalHasTheSizeAndAllColours(t *testing.T) {
	t.Setenv("CI", "true")
	t.Setenv("NO_COLOR", "1")
	term := terminalFor(t, `stty size; echo "CI=$CI. NO_COLOR=$NO_COLOR. COLORTERM=$COLORTERM."; read line`)
	want := fmt.Sprintf(`%d %d\s+CI=\. NO_COLOR=\. COLORTERM=truecolor\.`, rowsOfTerminal, columns)
	check.ErrorIs(t, term.waitFor(t.Context(), want), nil)
}

func TestKeysReachTheProgramAndColoursTheCapture(t *testing.T) {
	term := terminalFor(t, `read line; printf '\033[38;2;1;2;3m%s' "$line"; read line`)
	check.NoError(t, term.press(t.Context(), []string{"h", "i", "Enter"}))
	check.NoError(t, term.waitFor(t.Context(), `hi\s+hi`))
	text := check.Must(term.capture(t.Context()))(t)
	check.True(t, strings.Contains(text, "\x1b[38;2;1;2;3mhi"), "the capture is %q", text)
}

func TestWaitForReportsAProgramThatEnded(t *testing.T) {
	term := terminalFor(t, `echo no such luck; read line`)
	check.NoError(t, term.waitFor(t.Context(), `luck`)) // tmux may lose the last output of a program
	check.NoError(t, term.press(t.Context(), []string{"Enter"}))
	err := term.waitFor(t.Context(), `never`)
	check.ErrorContains(t, err, "the program ended")
	check.ErrorContains(t, err, "no such luck")
}

func TestWaitForEndsWithTheContextAndRejectsABadPattern(t *testing.T) {
	term := terminalFor(t, `read line`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.True(t, term.waitFor(ctx, `never`) != nil, "a cancelled wait found something")
	check.ErrorContains(t, term.waitFor(t.Context(), `(`), "missing closing", "a bad pattern")
}

func TestAProgramThatFailsIsReportedWithItsOutput(t *testing.T) {
	check.ErrorContains(t, run(t.Context(), "sh", "-c", "echo no such luck; exit 1"), "no such luck")
}

var inTag = regexp.MustCompile(`<[^>]+>`)

// The README says of each picture what the picture shows, and the picture is of the scene that it names.
func TestThePicturesShowWhatTheReadmeSays(t *testing.T) {
	readme := string(check.Must(os.ReadFile("../README.md"))(t))
	for _, s := range shots() {
		check.Contains(t, readme, `<source media="(prefers-color-scheme: light)" srcset="screenshots/`+s.name+`-light.svg">`)
		check.Contains(t, readme, `<img alt="`+s.alt+`" src="screenshots/`+s.name+`.svg">`)
		for _, theme := range []string{"", "-light"} {
			picture := string(check.Must(os.ReadFile(s.name + theme + ".svg"))(t))
			words := strings.Join(strings.Fields(html.UnescapeString(inTag.ReplaceAllString(picture, " "))), " ")
			check.Contains(t, picture, "<title>"+s.title()+"</title>")
			for _, text := range s.shows {
				check.True(t, strings.Contains(words, text), "%s%s.svg does not show %q: %s", s.name, theme, text, words)
			}
		}
	}
}
