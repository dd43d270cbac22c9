//go:build unix

package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"locktop/internal/check"
	"locktop/internal/server"
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

// program writes a shell script, which takes the place of redis-server.
func program(t *testing.T, lines ...string) (path string) {
	path = filepath.Join(t.TempDir(), "server")
	check.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(lines, "\n")+"\n"), 0o700))
	return path
}

func TestReadinessIsSeenHoweverTheOutputIsCut(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	lines := []string{"yes '# Warning: overcommit' | head -n 500"}
	for _, r := range "* Ready to accept connection" {
		lines = append(lines, fmt.Sprintf("printf '%c'; sleep 0.001", r))
	}
	lines = append(lines, ": > "+said, "printf s", "exec sleep 10")
	c, err := server.StartChild(t.Context(), servertest.Program(program(t, lines...)))
	check.NoError(t, err)
	check.True(t, exists(said), "ready before the server said so")
	check.NoError(t, c.Stop())
}

// What a server says long before its end is not the reason of its end.
func TestTheEndOfTheOutputIsTheReasonOfAFailedStart(t *testing.T) {
	const taken, chatter = "echo 'bind: Address already in use'", "yes chatter | head -n 512" // 4 KiB
	for want, lines := range map[string][]string{
		"another process took its port":  {chatter, taken},
		"it ended at once: no such disk": {taken, chatter, "echo no such disk"},
	} {
		_, err := server.StartChild(t.Context(), servertest.Program(program(t, lines...)))
		check.ErrorContains(t, err, want)
	}
}
