//go:build unix

package cli

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// stopGroup stops the process group of a process, as Ctrl-Z does.
func stopGroup(t *testing.T, p *os.Process) {
	t.Helper()
	check.NoError(t, syscall.Kill(-p.Pid, syscall.SIGSTOP))
}

// The load on the screen ends with its terminal, and its keys are deleted, also one without a TTL.
func TestAClosedTerminalEndsTheLoadAndItsKeys(t *testing.T) {
	long(t, "it runs the program in a terminal, and a load")
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	endless := func() bool {
		for _, key := range rdb.Keys(t.Context(), "load:*").Val() {
			if rdb.PTTL(t.Context(), key).Val() == -1 {
				return true
			}
		}
		return false
	}
	term := openTerminal(t, 120, 40, "--url", "redis://"+addr, "--load")
	term.want("m shows ").press("m").want("setnx-crash").press("A").wait("a key without a TTL", func(string) bool { return endless() })
	pid := check.Must(strconv.Atoi(strings.TrimSpace(term.tmux("list-panes", "-F", "#{pane_pid}"))))(t)
	term.tmux("kill-session")
	within(t, longestWait, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	wantNoKeys(t, addr)
}

// SIGHUP ends every command like SIGTERM, unless it is ignored, as by nohup.
func TestAHangupEndsACommand(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) { // under nohup: children inherit that, but not a handler
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		t.Cleanup(func() { signal.Ignore(syscall.SIGHUP) })
	}
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	for _, c := range []struct {
		command string
		signals []syscall.Signal
		code    int
	}{
		{"exec locktop watch -u redis://" + addr, []syscall.Signal{syscall.SIGHUP}, 129},
		{"exec locktop watch -u redis://" + addr, []syscall.Signal{syscall.SIGTERM}, 143},
		{"exec locktop load setnx-crash -u redis://" + addr, []syscall.Signal{syscall.SIGHUP}, 129},
		{"trap '' HUP; exec locktop watch -u redis://" + addr, []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, 143},
	} {
		s := spawnCommand(t, exec.Command("sh", "-c", c.command))
		within(t, longestWait, func() bool { return strings.Contains(rdb.ClientList(t.Context()).Val(), "name=locktop") })
		for _, sig := range c.signals {
			s.signal(sig)
		}
		s.exits(c.code)
		wantNoKeys(t, addr)
	}
}
