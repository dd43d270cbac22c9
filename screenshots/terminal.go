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

// terminal is a tmux server of our own with one window, in which one program
// runs.
type terminal struct {
	socket string
}

// openTerminal runs a program in a terminal of columns×rows that has all
// colours. socket names a file that does not exist yet.
func openTerminal(ctx context.Context, socket string, argv []string) (*terminal, error) {
	t := &terminal{socket: socket}
	args := []string{
		"set-option", "-g", "default-terminal", "xterm-256color", ";",
		"set-option", "-g", "remain-on-exit", "on", ";",
		"new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), "-e", "COLORTERM=truecolor", "--",
	}
	if _, err := t.tmux(ctx, append(args, argv...)...); err != nil {
		return nil, err
	}
	return t, nil
}

// tmux runs one tmux command and returns what it printed.
func (t *terminal) tmux(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.socket, "-f", os.DevNull}, args...)...)
	cmd.Env = colourful(os.Environ())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// colourful is an environment without what makes programs switch colours off.
func colourful(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "CI=") || strings.HasPrefix(v, "NO_COLOR=")
	})
}

// close ends the program and the tmux server it runs in, also after ctx of the
// other calls has ended.
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

// patience is how long a step may take to show on the screen.
const patience = 2 * time.Minute

// await returns when the screen matches a regular expression. It is an error if
// it does not for too long, or the program ends; the error shows the screen.
func (t *terminal) await(ctx context.Context, pattern string) error {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; {
		// Dead or alive is asked first: the screen is then the last one.
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
			all, err := t.tmux(ctx, "capture-pane", "-p", "-S", "-") // tmux's own last line moves it up
			return errors.Join(fmt.Errorf("the program ended before the screen matched %q:\n%s", pattern, all), err)
		case time.Now().After(end):
			return fmt.Errorf("the screen did not match %q in %v:\n%s", pattern, patience, screen)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// picture is the screen with its colours, as escape sequences.
func (t *terminal) picture(ctx context.Context) (string, error) {
	return t.tmux(ctx, "capture-pane", "-e", "-p", "-N")
}
