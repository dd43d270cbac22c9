package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// spawned is the program in a process of its own.
type spawned struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs *lines
	ended     chan struct{} // closed at its end
}

// spawn starts the program. It is killed at the end of the test.
func spawn(t *testing.T, args ...string) *spawned {
	t.Helper()
	return spawnIn(t, nil, args...)
}

// spawnIn starts the program in an environment; nil is that of the test.
func spawnIn(t *testing.T, env []string, args ...string) *spawned {
	t.Helper()
	cmd := exec.Command(check.Must(os.Executable())(t))
	cmd.Args, cmd.Env = append([]string{"locktop"}, args...), env
	return spawnCommand(t, cmd)
}

// spawnCommand starts any command, which is killed at the end of the test.
func spawnCommand(t *testing.T, cmd *exec.Cmd) *spawned {
	t.Helper()
	s := &spawned{t: t, cmd: cmd, out: newLines(), errs: newLines(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.out, s.errs
	check.NoError(t, cmd.Start())
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // the tests look at its state
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Logf("%q: %s\n%s%.3000s", cmd.Args, cmd.ProcessState, s.errs, s.out)
		}
	})
	return s
}

// longestWait is how long tests wait for an event. Only a failing test waits that long.
const longestWait = 60 * time.Second

// says waits until the process has written a text to stderr.
func (s *spawned) says(text string) {
	s.t.Helper()
	within(s.t, longestWait, func() bool { return strings.Contains(s.errs.String(), text) })
}

// exits waits for the end of the process, with an exit code.
func (s *spawned) exits(code int) {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(longestWait):
		s.t.Fatal("it does not end")
	}
	got := s.cmd.ProcessState.ExitCode()
	check.True(s.t, got == code, "%q: exit code %d, want %d", s.cmd.Args, got, code)
}

func (s *spawned) signal(sig os.Signal) {
	s.t.Helper()
	check.NoError(s.t, s.cmd.Process.Signal(sig))
}

// kill kills the process, and returns when it has ended.
func (s *spawned) kill() {
	s.t.Helper()
	s.signal(os.Kill)
	<-s.ended
}

// wantNoKeys fails the test if one of the servers has keys.
func wantNoKeys(t *testing.T, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		keys, err := sent(t, addr, "KEYS", "*").StringSlice()
		check.True(t, err == nil && len(keys) == 0, "keys left behind at %s: %q, %v", addr, keys, err)
	}
}

func TestTheCoordinatorNamesTheAgentThatRefuses(t *testing.T) {
	t.Parallel()
	target, controlServer := servertest.RedisForTest(t).Addr(), servertest.RedisForTest(t).Addr()
	l := spawn(t, "load", "-u", "redis://"+target, "--control", "redis://"+controlServer, "--agents", "2", "--duration", "10m")
	control := clientTo(t, controlServer)
	popped := check.Must(control.BLPop(t.Context(), longestWait, "locktop:agents:tickets").Result())(t)
	var ticket struct {
		Run   string
		Agent int
	}
	check.NoError(t, json.Unmarshal([]byte(popped[1]), &ticket))
	refused := fmt.Sprintf(`{"message":"refused","agent":%d,"name":"host-b:7","error":"this agent may not load %s"}`, ticket.Agent, target)
	check.NoError(t, control.XAdd(t.Context(), &redis.XAddArgs{Stream: "locktop:agents:{" + ticket.Run + "}:messages", Values: []any{"json", refused}}).Err())
	l.exits(exitFailure)
	want := "locktop: agent host-b:7 refuses: this agent may not load " + target + "\n"
	check.True(t, strings.HasSuffix(l.errs.String(), want), "it says %q, want %s", l.errs.String(), want)
	wantNoKeys(t, controlServer, target)
}

// The Job in docs/load.md is one that Kubernetes reads, and starts an agent for one run.
func TestTheJobInTheDocsStartsAgents(t *testing.T) {
	page := readText(t, "../docs/load.md")
	_, block, _ := strings.Cut(page, "```yaml\napiVersion")
	block, _, _ = strings.Cut("apiVersion"+block, "```")
	job := objectsOf(t, block)["batch/v1 Job"]
	wantKeys(t, job, "apiVersion", "kind", "metadata", "name", "spec", "completionMode", "completions", "parallelism", "backoffLimit",
		"template", "restartPolicy", "containers", "image", "args")
	for path, want := range map[string]any{
		"spec.completionMode": "Indexed", "spec.parallelism": at(job, "spec.completions"), "spec.backoffLimit": 0,
		"spec.template.spec.restartPolicy": "Never", "spec.template.spec.containers.len": 1,
	} {
		got := at(job, path)
		check.True(t, got == want, "%s is %v, want %v", path, got, want)
	}
	n, _ := at(job, "spec.completions").(int)
	check.True(t, n >= 2 && at(job, "metadata.name") != nil && at(job, "spec.template.spec.containers.0.image") != nil, "%v", job)
	var args []string
	for _, word := range at(job, "spec.template.spec.containers.0.args").([]any) {
		args = append(args, word.(string))
	}
	check.True(t, slices.Contains(args, "--once"), "the Job does not end after one run: %v", args)
	locktop(t, append(args, "--help")...).says(t, exitFine)
}

// agentsOn counts the agents on a screen that have one of the numbers of clients and the state.
func agentsOn(screen, state string, clients ...string) int {
	n := 0
	for _, row := range regexp.MustCompile(`(?m)^.\d+ \S+:\d+ +(\d+) .*  (\w+) *$`).FindAllStringSubmatch(screen, -1) {
		if row[2] == state && (len(clients) == 0 || slices.Contains(clients, row[1])) {
			n++
		}
	}
	return n
}

// The Load page runs a load by agents like one of its own: it waits for them, shows each, names
// one that is killed, and leaves nothing.
func TestTheScreenRunsALoadByAgents(t *testing.T) {
	long(t, "it runs the program in a terminal, and loads by agents")
	target, control := servertest.RedisForTest(t).Addr(), servertest.RedisForTest(t).Addr()
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
	term.press("f").want("Inject a fault").press("v").wait("the locks of the load are deleted", func(screen string) bool {
		return strings.Contains(screen, "all locks of the load are deleted") || strings.Contains(screen, "after a fault that deletes locks") // two overlaps hide the fault
	})
	term.quit()
	wantNoKeys(t, target, control) // after quitting
}
