package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
)

// terminal is a tmux of its own in which locktop runs.
type terminal struct {
	t       *testing.T
	socket  string
	pressed int // number of keys so far, without those typed into a prompt
}

// needTmux skips a test without tmux, or fails it if nothing may be skipped.
func needTmux(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		check.Require(t, os.Getenv(server.RequireRedis) == "", "%v", err)
		t.Skip("needs tmux: apt-get install tmux, brew install tmux")
	}
}

// openTerminal runs locktop in a terminal of w columns and h lines until the
// end of the test. Without tmux the test is skipped.
func openTerminal(t *testing.T, w, h int, args ...string) *terminal {
	t.Helper()
	program := check.Must(exec.LookPath("locktop"))(t)
	return openTerminalFor(t, w, h, append([]string{program}, args...)...)
}

// openTerminalFor is openTerminal for another command.
func openTerminalFor(t *testing.T, w, h int, command ...string) *terminal {
	t.Helper()
	needTmux(t)
	dir := tmuxDir(t)
	term := &terminal{t: t, socket: filepath.Join(dir, "tmux")}
	env := []string{"env", "-u", "CI", "-u", "NO_COLOR", "TERM=xterm-256color", "XDG_STATE_HOME=" + dir}
	term.tmux(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(w), "-y", strconv.Itoa(h)}, append(env, command...)...)...)
	endWithTests(term.socket)
	return term
}

// tmuxDir makes the directory of a tmux, and ends the tmux with the test.
func tmuxDir(t *testing.T) string {
	t.Helper()
	dir, remove, err := server.TempDir() // a socket's path must be short
	check.NoError(t, err)
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", filepath.Join(dir, "tmux"), "kill-server").Run()
		_ = remove()
	})
	return dir
}

// endWithTests ends a tmux when this process has ended, even if it was killed.
func endWithTests(socket string) {
	guard := fmt.Sprintf("while kill -0 %d 2>/dev/null; do sleep 1; done; tmux -S %s kill-server", os.Getpid(), socket)
	_ = exec.Command("tmux", "-S", socket, "run-shell", "-b", guard).Run() // the tmux may have ended with its program
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	check.Require(term.t, err == nil, "tmux %q: %v: %s", args, err, out)
	return string(out)
}

func (term *terminal) screen() string { return term.tmux("capture-pane", "-p") }

// quit closes all dialogs, and then the program.
func (term *terminal) quit() {
	term.t.Helper()
	for range 200 {
		for _, key := range []string{"Escape", "q"} {
			if exec.Command("tmux", "-S", term.socket, "send-keys", key).Run() != nil {
				return // the program has ended
			}
			time.Sleep(100 * time.Millisecond) // otherwise the two would be another key
		}
	}
	term.t.Fatalf("it does not end\n%s", term.screen())
}

// press presses a key, by its tmux name.
func (term *terminal) press(key string) *terminal {
	term.t.Helper()
	term.pressed++
	term.tmux("send-keys", key)
	return term
}

// enter types a text into a prompt.
func (term *terminal) enter(text string) *terminal {
	term.t.Helper()
	term.tmux("send-keys", "-l", text)
	return term
}

// want waits until all texts are on the screen.
func (term *terminal) want(texts ...string) *terminal {
	term.t.Helper()
	return term.wait(strings.Join(texts, ", "), has(texts))
}

// has returns a condition: all texts are on the screen.
func has(texts []string) func(screen string) bool {
	return func(screen string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	}
}

// sees waits up to 10 s until all texts are on the screen, and reports whether they were.
func (term *terminal) sees(texts ...string) bool {
	term.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if has(texts)(term.screen()) {
			return true
		}
	}
	return false
}

// wait waits until the screen meets a condition.
func (term *terminal) wait(what string, ok func(screen string) bool) *terminal {
	term.t.Helper()
	for range 600 {
		if ok(term.screen()) {
			return term
		}
		time.Sleep(50 * time.Millisecond)
	}
	term.t.Fatalf("waited half a minute for: %s\n%s", what, term.screen())
	return term
}
