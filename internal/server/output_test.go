//go:build unix

package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
)

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
	c, err := server.StartChild(t.Context(), server.ChildOptions{Server: program(t, lines...)})
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
		_, err := server.StartChild(t.Context(), server.ChildOptions{Server: program(t, lines...)})
		check.ErrorContains(t, err, want)
	}
}
