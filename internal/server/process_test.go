//go:build unix

package server

import (
	"errors"
	"strings"
	"testing"
)

func TestFrozenServerIsShutDownRatherThanKilled(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	must(t, c.Freeze())
	must(t, c.Stop())
	if state := c.proc.cmd.ProcessState; !state.Success() {
		t.Errorf("it ended with %v", state)
	}
}

func TestDeadServerSaysThatItDoesNotRun(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	must(t, c.Kill())
	for name, call := range map[string]func() error{"freeze": c.Freeze, "continue": c.Continue} {
		if err := call(); err == nil || !strings.Contains(err.Error(), name+" the redis child: it does not run") {
			t.Errorf("%s says %v", name, err)
		}
	}
}

func TestAnotherServerOnThePortIsNotTheChild(t *testing.T) {
	t.Parallel()
	other, c := ForTest(t), ForTest(t)
	must(t, c.Kill())
	c.port = other.port
	if err := c.Restart(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("restart on a taken port says %v", err)
	}
	if pid := c.PID(); pid != 0 {
		t.Errorf("it claims to be process %d", pid)
	}
}
