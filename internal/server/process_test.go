//go:build unix

package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

func TestFrozenServerIsShutDownRatherThanKilled(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	c := servertest.RedisForTest(t, "--pidfile", pidFile)
	check.Require(t, exists(pidFile), "there is no %s to begin with", pidFile)
	check.NoError(t, c.Freeze())
	check.NoError(t, c.Stop())
	check.True(t, !exists(pidFile), "it did not remove %s at its end", pidFile)
	check.True(t, !answers(c.Addr()), "it still answers")
}

func TestDeadServerSaysThatItDoesNotRun(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	check.NoError(t, c.Kill())
	for name, call := range map[string]func() error{"freeze": c.Freeze, "continue": c.Continue} {
		err := call()
		check.True(t, err != nil && strings.Contains(err.Error(), name+" the redis child: it does not run"), "%s says %v", name, err)
	}
}

func TestAnotherServerOnThePortIsNotTheChild(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	check.NoError(t, c.Kill())
	other := miniredis.NewMiniRedis()
	check.NoError(t, other.StartAddr(c.Addr()))
	defer other.Close()
	check.Require(t, answers(c.Addr()), "the other server does not answer")
	check.ErrorContains(t, c.Restart(t.Context()), "another process took its port", "restart on a taken port")
	check.Equal(t, c.PID(), 0, "it claims to be process")
}
