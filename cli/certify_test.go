//go:build linux

package cli

import (
	"os"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// inside returns the processes whose environment has the name of a directory, or which run
// in it, as the servers, which overwrite their environment.
func inside(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, p := range processes(t) {
		if strings.Contains(p.env, dir) || strings.HasPrefix(p.cwd, dir) {
			found = append(found, p.args)
		}
	}
	return found
}

// certifying starts certify in a process of its own. It returns when servers and clients
// run: redis-server or valkey-server.
func certifying(t *testing.T) (s *spawned, dir string) {
	t.Helper()
	server.ForTest(t) // skips without redis-server
	dir = t.TempDir()
	args := []string{"certify", "--exec", "locktop load --as-client mutex", "--tests", "renewal,freeze,nodes-2-down,failover"}
	s = spawnIn(t, append(os.Environ(), "TMPDIR="+dir), args...)
	within(t, longestWait, func() bool {
		running := inside(t, dir)
		return len(running) > 5 && strings.Contains(strings.Join(running, " "), "-server")
	})
	return s, dir
}

func TestAnInterruptedCardIsPrintedAndLeavesNoProcess(t *testing.T) {
	testtier.Long(t, "it starts client processes")
	t.Parallel()
	s, dir := certifying(t)
	s.signal(os.Interrupt)
	s.exits(exitInterrupted)
	wantAll(t, s.out.String(), "TEST ", "renewal       unclear", "it was interrupted", "nodes-2-down  -")
	left := inside(t, dir)
	check.True(t, len(left) == 0, "left behind: %q", left)
}

func TestAKilledCertifyLeavesNoProcess(t *testing.T) {
	t.Parallel()
	s, dir := certifying(t)
	s.kill()
	eventually(t, func() bool { return len(inside(t, dir)) == 0 })
}
