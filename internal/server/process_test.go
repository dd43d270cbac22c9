//go:build unix

package server

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestFrozenServerIsShutDownRatherThanKilled(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	check.NoError(t, c.Freeze())
	check.NoError(t, c.Stop())
	state := c.proc.cmd.ProcessState
	check.True(t, state.Success(), "it ended with %v", state)
	check.True(t, !answers(c.Addr()), "it still answers")
}

func TestDeadServerSaysThatItDoesNotRun(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	check.NoError(t, c.Kill())
	for name, call := range map[string]func() error{"freeze": c.Freeze, "continue": c.Continue} {
		err := call()
		check.True(t, err != nil && strings.Contains(err.Error(), name+" the redis child: it does not run"), "%s says %v", name, err)
	}
}

func TestAnotherServerOnThePortIsNotTheChild(t *testing.T) {
	t.Parallel()
	other, c := ForTest(t), ForTest(t)
	check.NoError(t, c.Kill())
	c.port = other.port
	check.ErrorIs(t, c.Restart(t.Context()), errPortTaken, "restart on a taken port says")
	check.Equal(t, c.PID(), 0, "it claims to be process")
}
