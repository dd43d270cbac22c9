package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// terminal is a tmux server with one window, in which one program runs.
type terminal struct {
	socket string
}

// openTerminal runs a program in a terminal of columns×rows with true colour.
// socket is the name of a file that does not exist yet.
func openTerminal(ctx context.Context, socket string, argv []string) (*terminal, error) {
	t := &terminal{socket: socket}
	args := []string{
		"set-option", "-g", "default-terminal", "xterm-256color", ";",
		"set-option", "-g", "remain-on-exit", "on", ";",
		"new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rowsOfTerminal), "-e", "COLORTERM=truecolor", "--",
	}
	if _, err := t.tmux(ctx, append(args, argv...)...); err != nil {
		return nil, err
	}
	return t, nil
}

// tmux runs one tmux command and returns its output.
func (t *terminal) tmux(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.socket, "-f", os.DevNull}, args...)...)
	cmd.Env = withColours(os.Environ())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// withColours returns env without the variables that make programs switch colours
// off.
func withColours(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "CI=") || strings.HasPrefix(v, "NO_COLOR=")
	})
}

// close ends the program and its tmux server, even if the context of other
// calls has ended.
func (t *terminal) close() {
	_, _ = t.tmux(context.Background(), "kill-server") // it may have ended with its program
}

// press sends keys to the program.
func (t *terminal) press(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := t.tmux(ctx, append([]string{"send-keys"}, keys...)...)
	return err
}

// stepTimeout is the maximum time of a step.
const stepTimeout = 2 * time.Minute

// waitFor returns when the screen matches a regular expression. It returns an
// error with the contents of the screen if that takes too long or the program
// ends.
func (t *terminal) waitFor(ctx context.Context, pattern string) error {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	for end := time.Now().Add(stepTimeout); ; {
		// The state of the program is read first, so that the screen is the
		// last one if it has ended.
		dead, err := t.tmux(ctx, "display-message", "-p", "#{pane_dead}")
		if err != nil {
			return err
		}
		screen, err := t.tmux(ctx, "capture-pane", "-p")
		switch {
		case err != nil:
			return err
		case wanted.MatchString(screen):
			return nil
		case strings.TrimSpace(dead) == "1":
			all, err := t.tmux(ctx, "capture-pane", "-p", "-S", "-") // includes the lines that tmux's own last line scrolled up
			return errors.Join(fmt.Errorf("the program ended before the screen matched %q:\n%s", pattern, all), err)
		case time.Now().After(end):
			return fmt.Errorf("the screen did not match %q in %v:\n%s", pattern, stepTimeout, screen)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// sleep waits, and returns an error if ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// capture returns the screen with its colours, as escape sequences.
func (t *terminal) capture(ctx context.Context) (string, error) {
	return t.tmux(ctx, "capture-pane", "-e", "-p", "-N")
}

// captureLines returns the lines of the screen from the first one that matches an expression to the next one that matches another.
func (t *terminal) captureLines(ctx context.Context, from, to string) ([]string, error) {
	screen, err := t.tmux(ctx, "capture-pane", "-p")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(screen, "\n")
	first := slices.IndexFunc(lines, regexp.MustCompile(from).MatchString)
	if first < 0 {
		return nil, fmt.Errorf("no line matches %q:\n%s", from, screen)
	}
	length := slices.IndexFunc(lines[first:], regexp.MustCompile(to).MatchString)
	if length < 0 {
		return nil, fmt.Errorf("no line after the first matches %q:\n%s", to, screen)
	}
	text, err := t.tmux(ctx, "capture-pane", "-e", "-p", "-N", "-S", strconv.Itoa(first), "-E", strconv.Itoa(first+length))
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), err
}
