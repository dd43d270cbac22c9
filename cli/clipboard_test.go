package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
)

// inTmux starts a tmux with its default settings, and makes this process look
// like a program in it.
func inTmux(t *testing.T) (tmux func(args ...string) string) {
	t.Helper()
	needTmux(t)
	socket := filepath.Join(tmuxDir(t), "tmux")
	tmux = func(args ...string) string {
		t.Helper()
		out, err := exec.Command("tmux", append([]string{"-S", socket}, args...)...).CombinedOutput()
		check.Require(t, err == nil, "tmux %q: %v: %s", args, err, out)
		return strings.TrimSuffix(string(out), "\n")
	}
	tmux("-f", "/dev/null", "new-session", "-d", "sleep", "600")
	endWithTests(socket)
	t.Setenv("TMUX", tmux("display-message", "-p", "#{socket_path},#{pid},0"))
	return tmux
}

func TestTmuxReceivesACopiedText(t *testing.T) {
	tmux := inTmux(t)
	var out bytes.Buffer
	const text = "redis-cli EVAL 'return 1' \n-- and \x27more"
	check.NoError(t, (clipboard{&out}).Copy(text))
	got := tmux("show-buffer")
	check.True(t, got == text, "tmux has %q, want %q", got, text)
	check.True(t, out.Len() == 0, "its terminal was told %q besides", out.String())
}

func TestATmuxThatDoesNotAnswerIsSentBothSequences(t *testing.T) {
	t.Setenv("TMUX", filepath.Join(t.TempDir(), "gone")+",1,0")
	var out bytes.Buffer
	check.NoError(t, (clipboard{&out}).Copy("key"))
	want := "\x1b]52;c;a2V5\x07" + "\x1bPtmux;\x1b\x1b]52;c;a2V5\x07\x1b\\"
	check.True(t, out.String() == want, "sent %q, want %q", out.String(), want)
}
