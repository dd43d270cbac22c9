package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// agentRow is the row of an agent on the Load page: its clients and its state.
var agentRow = regexp.MustCompile(`(?m)^.\d+ \S+:\d+ +(\d+) .*  (\w+) *$`)

// agentsOn counts the agents on a screen that have one of the numbers of clients and the state.
func agentsOn(screen, state string, clients ...string) int {
	n := 0
	for _, row := range agentRow.FindAllStringSubmatch(screen, -1) {
		if row[2] == state && (len(clients) == 0 || slices.Contains(clients, row[1])) {
			n++
		}
	}
	return n
}

// The Load page runs a load by agents like one of its own: it waits for them, shows each, names
// one that is killed, and leaves nothing.
func TestTheScreenRunsALoadByAgents(t *testing.T) {
	testtier.Long(t, "it runs the program in a terminal, and loads by agents")
	t.Parallel()
	target, control := server.ForTest(t).Addr(), server.ForTest(t).Addr()
	flags := []string{"-u", "redis://" + target, "--control", "redis://" + control, "--agents", "4"}
	open := func() *terminal {
		term := openTerminal(t, 80, 24, append(flags, "--load")...)
		term.want("m shows ")
		return term.press("3").want("nothing has run yet").press("s")
	}
	startAgent := func() *spawned { return spawn(t, "agent", "--control", "redis://"+control) }
	running := func(n int, clients ...string) func(string) bool {
		return func(screen string) bool { return agentsOn(screen, "running", clients...) == n }
	}

	term := openTerminal(t, 80, 24, flags...).want("no locks among").press("3").want("s runs clients on it, after a question")
	term.press("s").want("Run clients on this server?").press("y").want("waiting for 4 agents: none is there")
	victim := startAgent()
	startAgent()
	term.want("waiting for 4 agents: 2 are there").press("+").want("2 are there; s ends the wait")
	begin := time.Now()
	term.quit()
	took := time.Since(begin)
	check.True(t, !testtier.Proving() || took <= 10*time.Second, "quitting took %s while it waited for agents", took)
	wantNoKeys(t, target, control) // after quitting during the wait

	term = open().want("waiting for 4 agents: 2 are there").press("s").want("the start was cancelled before all agents had come")
	wantNoKeys(t, target, control) // after the wait was ended
	startAgent()
	startAgent()
	term.press("s").wait("four agents run", running(4, "5")).want("20 clients", "witness 0 overlaps in the order of")
	term.press("+").want("30 clients").wait("the agents have 30 clients", running(4, "7", "8"))
	term.press("f").want("a client of any agent at random").press("c").want("crashes while holding load:")

	killed := time.Now()
	victim.kill()
	name := fmt.Sprintf(":%d) was lost at", victim.cmd.Process.Pid)
	term.want(name, "the run is incomplete").wait("one is lost, three run", func(screen string) bool { return agentsOn(screen, "lost") == 1 && running(3)(screen) })
	took = time.Since(killed)
	check.True(t, !testtier.Proving() || took <= 8*time.Second, "the agent was named %s after it was killed", took)
	term.press("n").want("waiting for 4 agents: 3 are there")
	startAgent()
	term.wait("four agents run a scene", running(4)).want("scene 1 of").wait("nothing is lost", func(screen string) bool { return !strings.Contains(screen, "lost at") })
	term.press("s").want("○ stopped", "✓ no overlap was seen")
	wantNoKeys(t, target, control) // after the stop
	term.press("s").wait("four agents run again", running(4))
	term.press("f").want("Inject a fault").press("v").want("all locks of the load are deleted")
	term.quit()
	wantNoKeys(t, target, control) // after quitting
}
