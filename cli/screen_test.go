package cli

import (
	"bytes"
	"context"
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
	"locktop/internal/servertest"
	"locktop/tui"
)

func TestTheScreenFitsWhatTheTerminalCanDo(t *testing.T) {
	for _, c := range []struct {
		env           map[string]string
		look          screenFlags
		theme, glyphs string
		dumb          bool
	}{
		{env: map[string]string{"LANG": "en_US.UTF-8"}},
		{env: map[string]string{"LANG": "de_DE.utf8"}},
		{}, // a container: no variable is set
		{env: map[string]string{"LANG": "C"}, theme: "mono", glyphs: "ascii"},
		{env: map[string]string{"LANG": "en_US.UTF-8", "LC_CTYPE": "en_US.ISO-8859-1"}, theme: "mono", glyphs: "ascii"},
		{env: map[string]string{"LC_ALL": "C.UTF-8", "LC_CTYPE": "C", "LANG": "C"}},
		{env: map[string]string{"LANG": "C"}, look: screenFlags{theme: "dark", glyphs: "block"}, theme: "dark", glyphs: "block"},
		{env: map[string]string{"NO_COLOR": "1"}, theme: "mono"},
		{env: map[string]string{"TERM": "dumb"}, dumb: true},
	} {
		for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "TERM"} {
			t.Setenv(name, c.env[name])
		}
		var w tui.Config
		c.look.applyTo(&w)
		check.True(t, w.Theme == c.theme && w.Glyphs == c.glyphs && w.Dumb == c.dumb,
			"%v: theme %q, glyphs %q, dumb %v", c.env, w.Theme, w.Glyphs, w.Dumb)
	}
}

// terminal is a tmux of its own in which locktop runs.
type terminal struct {
	t       *testing.T
	socket  string
	pressed int // number of keys so far, without those typed into a prompt
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
	if _, err := exec.LookPath("tmux"); err != nil {
		check.Require(t, os.Getenv(servertest.RequireRedis) == "", "%v", err)
		t.Skip("needs tmux: apt-get install tmux, brew install tmux")
	}
	dir := socketDir(t)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", filepath.Join(dir, "tmux"), "kill-server").Run() })
	term := &terminal{t: t, socket: filepath.Join(dir, "tmux")}
	env := []string{"env", "-u", "CI", "-u", "NO_COLOR", "TERM=xterm-256color", "XDG_STATE_HOME=" + dir}
	term.tmux(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(w), "-y", strconv.Itoa(h)}, append(env, command...)...)...)
	// The tmux ends when this process has ended, even if it was killed. It may have ended with its program.
	guard := fmt.Sprintf("while kill -0 %d 2>/dev/null; do sleep 1; done; tmux -S %s kill-server", os.Getpid(), term.socket)
	_ = exec.Command("tmux", "-S", term.socket, "run-shell", "-b", guard).Run()
	return term
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

func TestTmuxReceivesACopiedText(t *testing.T) {
	term := openTerminalFor(t, 80, 24, "sleep", "600")
	t.Setenv("TMUX", strings.TrimSpace(term.tmux("display-message", "-p", "#{socket_path},#{pid},0"))) // as for a program in it
	var out bytes.Buffer
	const text = "redis-cli EVAL 'return 1' \n-- and \x27more"
	check.NoError(t, output{out: &out}.copyText(text))
	check.Equal(t, term.tmux("show-buffer"), text, "tmux has")
	check.True(t, out.Len() == 0, "its terminal was told %q besides", out.String())
}

func TestATmuxThatDoesNotAnswerIsSentBothSequences(t *testing.T) {
	t.Setenv("TMUX", filepath.Join(t.TempDir(), "gone")+",1,0")
	var out bytes.Buffer
	check.NoError(t, output{out: &out}.copyText("key"))
	want := "\x1b]52;c;a2V5\x07" + "\x1bPtmux;\x1b\x1b]52;c;a2V5\x07\x1b\\"
	check.True(t, out.String() == want, "sent %q, want %q", out.String(), want)
}

func TestANoticeHasNoSequenceOfItsText(t *testing.T) {
	const want = "\a\x1b]9;locktop: a, b]0,x\a\x1b]777;notify;locktop;locktop: a, b]0,x\a"
	for _, c := range []struct{ tmux, sty, want string }{
		{"", "", want},
		{"x", "", "\a\x1bPtmux;" + strings.ReplaceAll(want[1:], "\x1b", "\x1b\x1b") + "\x1b\\"},
		{"", "x", "\a"},
	} {
		t.Setenv("TMUX", c.tmux)
		t.Setenv("STY", c.sty)
		var out strings.Builder
		err := output{out: &out}.notify("a; b\x1b]0;x\a\u009d")
		check.True(t, err == nil && out.String() == c.want, "%q, want %q: %v", out.String(), c.want, err)
	}
}

func TestTheScreenTurnsToOtherLocks(t *testing.T) {
	long(t, "it runs the program in a terminal")
	srv := servertest.RedisForTest(t)
	for db, key := range []string{"lock:zero", "lock:one"} {
		rdb := clientWith(t, srv.Addr(), server.ClientOptions{DB: db})
		check.NoError(t, rdb.Set(t.Context(), key, "0b9f2c7e-3d4a-4c1b-9b0a-7d8d3f2b5c1e", time.Hour).Err())
		check.NoError(t, rdb.Set(t.Context(), "mutex:"+key, "1b9f2c7e-3d4a-4c1b-9b0a-7d8d3f2b5c1e", time.Hour).Err())
	}
	lacks := func(text string) func(string) bool {
		return func(screen string) bool {
			return strings.Contains(screen, "locks  ") && !strings.Contains(screen, text)
		}
	}
	term := openTerminal(t, 160, 45, "-u", "redis://"+srv.Addr(), "--write")
	term.want("lock:zero", "mutex:lock:zero").press(":").enter("db 1").press("Enter")
	term.want("lock:one", srv.Addr()+"/1").wait("nothing of database 0", lacks("lock:zero"))
	term.press(":").enter("match mutex:*").press("Enter").want("1 lock ", "mutex:lock:one")
	term.press("x").press("r").want("will still believe").press("y").want("released mutex:lock:one")

	one := clientWith(t, srv.Addr(), server.ClientOptions{DB: 1})
	n, err := one.Exists(context.Background(), "mutex:lock:one").Result()
	check.True(t, n == 0 && err == nil, "%d locks are left, %v", n, err)
	term.press(":").enter("db all").press("Enter").want("acts on the locks of one database")
	term.press(":").enter("match *").press("Enter").want("lock:one")
}

// A new user reads only the screen, and presses thirteen keys at most.
func TestTheDemoShowsHowLocksBehave(t *testing.T) {
	long(t, "it plays scenes in a terminal")
	term := openTerminal(t, 120, 40, "demo")
	term.want("m shows ", "job:nightly", "never", "OWNER", "TTL")

	term.press("3").want("f fault").press("f").want("a holder is gone without releasing").press("c")
	term.want("dies without releasing load:", "before the lease", "1 dead")
	term.wait("the lease runs out", func(screen string) bool {
		words := strings.Join(strings.Fields(screen), " ")
		return strings.Contains(words, "the crash") && strings.Contains(words, "acquires it")
	})

	term.press("m").want("Choose a scene", "press a letter", "Esc close", "freeze-fenced").press("o")
	term.want("freezes while holding", "◇ frozen")
	term.want("still believes it has", "acquires it as well")
	term.want("refused, its fencing token", "stale write refused 1", "0 overlaps, but two clients worked at the same time")

	for tries := 5; !playsMinority(term); tries-- {
		if tries == 1 {
			t.Fatalf("the screen never showed that two of five servers answer:\n%s", term.screen())
		}
	}
	check.True(t, term.pressed <= 13, "%d keys were pressed, want 13 at most", term.pressed)
}

// playsMinority plays the scene redlock-minority, and takes a third server down while two are down. It reports
// whether the screen showed it: the two servers come back after some seconds, so a slow machine may miss the moment.
// Then the keys do not count.
func playsMinority(term *terminal) bool {
	term.t.Helper()
	before := term.pressed
	term.press("m").want("redlock-minority").press("p").press("4").want(" of 5 servers answer", "  5  127.0.0.1:").press("j").press("j")
	if term.sees("3 of 5 servers answer, a majority is 3: locks are taken and released as before") {
		term.press("d")
		if term.sees("2 of 5 servers answer, a majority is 3: no lock can be acquired") {
			term.press("3")
			if term.sees("2 of 5 nodes up (majority: 3): no lock can be acquired", "0 overlaps: mutual exclusion held") {
				return true
			}
		}
	}
	term.pressed = before
	term.press("3").want("○ stopped") // the end of the scene
	term.pressed = before
	return false
}
