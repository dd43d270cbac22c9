package cli

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/loadgen/certify"
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
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
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
	long(t, "it starts client processes")
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

// The shortest counterexample is a table of commands with their replies, and what was left out is counted.
func TestTheOrdersAreATable(t *testing.T) {
	found := func(order string, faults int) *certify.Counterexample {
		return &certify.Counterexample{Order: order, Faults: faults, Seen: 2, Runs: 3, Finding: order + " is broken.", Steps: []certify.Step{
			{Client: "client-1", Command: "GET k\x1b", Reply: "v", Result: "lock: ok"}, {Client: "client-2", Fault: "killed"},
		}}
	}
	s := certify.Search{Server: "redis 7.0.15", Faults: 2, Clients: []certify.SearchResult{
		{Client: certify.Client{Name: "my lock", Command: "./my-client"}, Plays: []certify.Played{
			{Play: "release", Orders: []int{3, 20}, Found: found("release/a.ak.b", 1)},
			{Play: "readers", Orders: []int{3}, Found: found("readers/a.b.a.b", 0), Left: 7, Own: 5},
			{Play: "again", Unsupported: "no"},
		}},
		{Client: certify.Client{Name: "sound", Command: "./sound"}, Plays: []certify.Played{{Play: "release", Orders: []int{3, 20, 100}, Slow: 1}}},
	}}
	text := searchText(s, 80)
	for _, want := range []string{
		"3+20 ", "FOUND release/a.ak.b (2 of 3 runs)", "readers/a.b.a.b is broken.", "7 left out; 5 commands of its own", "client-2  [killed]",
		"To repeat it: locktop certify --exec ./my-client --order readers/a.b.a.b", "3+20+100", "none found; 1 too slow",
	} {
		check.True(t, strings.Contains(text, want), "no %q in:\n%s", want, text)
	}
	check.True(t, !strings.Contains(text, "\x1b") && !strings.Contains(text, "again") && !strings.Contains(text, "release/a.ak.b is broken"),
		"too much in:\n%s", text)
	for clients, code := range map[int]int{0: exitUnsafe, 1: 0} {
		err := searchError(certify.Search{Clients: s.Clients[clients : clients+1]})
		var exit *exitError
		check.True(t, errors.As(err, &exit) == (code != 0) && (exit == nil || exit.code == code), "client %d: %v", clients+1, err)
	}
}
