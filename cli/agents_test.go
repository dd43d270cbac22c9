package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
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

// agentRig is agents as processes, with a control server and a target.
type agentRig struct {
	t               *testing.T
	control, target *server.Child
	agents          []*spawned
}

func newAgentRig(t *testing.T, agents int, flags func(agent int) []string) *agentRig {
	t.Helper()
	r := &agentRig{t: t, control: servertest.RedisForTest(t), target: servertest.RedisForTest(t)}
	for i := range agents {
		args := []string{"agent", "--control", "redis://" + r.control.Addr()}
		if flags != nil {
			args = append(args, flags(i)...)
		}
		r.agents = append(r.agents, spawn(t, args...))
	}
	return r
}

// load starts a coordinator.
func (r *agentRig) load(args ...string) *spawned {
	r.t.Helper()
	return spawn(r.t, append([]string{"load", "-u", "redis://" + r.target.Addr(), "--control", "redis://" + r.control.Addr(), "--threshold", "outage.longest < 1m"}, args...)...)
}

// running starts a coordinator, and returns when its clients lock.
func (r *agentRig) running(args ...string) *spawned {
	r.t.Helper()
	l := r.load(args...)
	l.says("p99") // progress
	return l
}

// wantNoKeys fails the test if one of the servers has keys.
func wantNoKeys(t *testing.T, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		keys, err := sent(t, addr, "KEYS", "*").StringSlice()
		check.True(t, err == nil && len(keys) == 0, "keys left behind at %s: %q, %v", addr, keys, err)
	}
}

// wantNoLocks fails the test if a lock is held on the target, or a key has no TTL. Queues and
// fences may stay for a time.
func (r *agentRig) wantNoLocks() {
	r.t.Helper()
	rdb := clientTo(r.t, r.target.Addr())
	for _, key := range rdb.Keys(r.t.Context(), "*").Val() {
		if ttl := rdb.TTL(r.t.Context(), key).Val(); ttl == -1 || !strings.Contains(key, "::") && !strings.HasSuffix(key, ":run") {
			r.t.Errorf("the key %s is left, with a TTL of %s", key, ttl)
		}
	}
}

// loadReport is what the tests read of a report.
type loadReport struct {
	LastError string `json:"last_error"`
	Faults    []struct {
		Struck int `json:"struck_count"`
	}
	Figures loadgen.Figures
	Agents  []struct {
		Number  int
		Name    string
		Clock   float64 `json:"clock_behind_ms"`
		Lost    bool    `json:"unreachable"`
		Figures loadgen.Figures
	}
	Witness struct {
		Holds    int64 `json:"hold_count"`
		Proven   int64 `json:"proven_count"`
		Overlaps int64 `json:"overlap_count"`
		Excused  int64 `json:"excused_count"`
		Unseen   int64 `json:"unseen_count"`
		Examples []struct {
			Client string
			Others []string `json:"other_clients"`
		}
	}
	Seconds []struct {
		Acquired int64 `json:"acquired_count"`
	}
	Verdict struct {
		Safe bool
		Text string
		Gaps []string
	}
}

func (s *spawned) report() loadReport {
	s.t.Helper()
	r := decoded[loadReport](s.t, s.out.String())
	for name, sums := range map[string][2]float64{
		"arrivals": {r.Figures["arrivals.count"], r.Figures["acquired.count"] + r.Figures["timed_out.count"] + r.Figures["refused.count"] + r.Figures["errors.count"] + r.Figures["waiting.count"]},
		"acquired": {r.Figures["acquired.count"], r.Figures["released.count"] + r.Figures["expired.count"] + r.Figures["lost.count"] + r.Figures["unconfirmed.count"] + r.Figures["abandoned.count"] + r.Figures["holding.count"]},
	} {
		check.True(s.t, sums[0] == sums[1], "the sum of %s does not hold: %v", name, r.Figures)
	}
	return r
}

// gapsButUnanswered returns what the run does not know, without the requests that a busy witness did not answer.
func (r loadReport) gapsButUnanswered() []string {
	return slices.DeleteFunc(slices.Clone(r.Verdict.Gaps), func(gap string) bool { return strings.HasPrefix(gap, "The witness did not answer ") })
}

// wantEvents fails the test if the counts of a report are not those of event files, which are read without any type of the
// program.
func (r loadReport) wantEvents(t *testing.T, files ...string) {
	t.Helper()
	names := map[string]string{
		"arrive": "arrivals", "acquire": "acquired", "timeout": "timed_out", "refused": "refused", "error": "errors",
		"release": "released", "expire": "expired", "lost": "lost", "abandon": "abandoned",
	}
	events := make(map[string]int64)
	for _, file := range files {
		for _, e := range decodedLines[map[string]any](t, readText(t, file)) {
			events[names[e["event"].(string)]]++
		}
	}
	for _, name := range names {
		check.Equal(t, int64(r.Figures[name+".count"]), events[name], "%s, beside the events", name)
	}
}

func inDir(dir string, agent int) string {
	return filepath.Join(dir, fmt.Sprintf("agent-%d.jsonl", agent))
}

// When the control server stops for 3 s, the run goes on, and all figures arrive afterwards.
func TestARunOutlivesAPauseOfTheControlServer(t *testing.T) {
	long(t, "it runs a load by agents over a pause")
	dir := t.TempDir()
	r := newAgentRig(t, 2, func(i int) []string { return []string{"--once", "--events", inDir(dir, i)} })
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--duration", "8s", "--json")
	check.NoError(t, r.control.Freeze())
	time.Sleep(3 * time.Second) // the length of the pause
	check.NoError(t, r.control.Continue())
	l.exits(exitThreshold) // the witness did not answer
	report := l.report()
	report.wantEvents(t, inDir(dir, 0), inDir(dir, 1))
	gaps := report.gapsButUnanswered()
	check.True(t, len(gaps) == 0, "%q", gaps)
	check.True(t, report.Figures["acquired.count"] >= 200 && report.Verdict.Safe && report.Witness.Unseen != 0 && len(report.Seconds) >= 8,
		"%v, %+v, %d seconds", report.Figures, report.Witness, len(report.Seconds))
	for _, a := range r.agents {
		a.exits(exitFine)
	}
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
}

// When the control server stops for 15 s, all agents stop, release their locks, and say why.
func TestAgentsStopWithoutTheControlServer(t *testing.T) {
	long(t, "agents wait until a server is given up")
	r := newAgentRig(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--ttl", "1m", "--duration", "10m", "--json")
	check.NoError(t, r.control.Freeze())
	frozen := time.Now()
	for _, a := range r.agents {
		a.exits(exitFailure)
		took := time.Since(frozen)
		check.True(t, took >= 9*time.Second && (!testtier.Proving() || took <= 20*time.Second), "it stopped after %s", took)
		text := a.errs.String()
		check.True(t, strings.HasSuffix(text, "locktop: the control server has not answered for 10 s\n"), "it says %q", text)
	}
	r.wantNoLocks()
	time.Sleep(time.Until(frozen.Add(15 * time.Second))) // the length of the pause
	check.NoError(t, r.control.Continue())
	l.exits(exitThreshold)
	report := l.report()
	gaps := fmt.Sprint(report.Verdict.Gaps)
	check.True(t, strings.Contains(gaps, "The control server has not answered for 10 s") || strings.Contains(gaps, "was lost at"), "%v", gaps)
	for _, a := range report.Agents {
		check.True(t, a.Lost && a.Figures["holding.count"] <= 0 && report.Figures["holding.count"] <= 0, "%+v, of all %v", a, report.Figures)
	}
	wantNoKeys(t, r.target.Addr())
}

// When the coordinator is killed, the agents end the run, release their locks, and serve the next run.
func TestAgentsEndTheRunOfAKilledCoordinator(t *testing.T) {
	long(t, "agents wait until the coordinator is given up")
	r := newAgentRig(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--ttl", "1m", "--kind", "fair", "--fence", "true", "--duration", "10m")
	l.kill()
	for _, a := range r.agents {
		a.says("the coordinator is gone")
	}
	r.wantNoLocks()
	r.load("--agents", "2", "--duration", "1s").exits(exitFine)
}

// An interrupted coordinator reports, leaves no key, and the agents serve the next run.
func TestAnInterruptedCoordinatorReports(t *testing.T) {
	long(t, "it runs a load by agents for seconds")
	r := newAgentRig(t, 2, nil)
	for range 2 {
		l := r.running("--agents", "2", "--clients", "20", "--kind", "fair", "--fence", "true", "--duration", "10m")
		l.signal(os.Interrupt)
		l.exits(exitInterrupted)
		wantAll(t, l.out.String(), "arrivals ", "acquired ", "No overlap was seen: each agent saw its own clients, the witness those with valid leases.", "Witness: 0 overlaps")
		check.False(t, strings.Contains(l.out.String(), "incomplete"), "the report is incomplete:\n%s", l.out)
		wantNoKeys(t, r.control.Addr(), r.target.Addr())
	}
}

func TestAnInterruptedAgentIsNamed(t *testing.T) {
	long(t, "it runs a load by agents for seconds")
	r := newAgentRig(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "2", "--duration", "5s", "--json")
	r.agents[0].signal(os.Interrupt)
	r.agents[0].exits(exitInterrupted)
	l.exits(exitThreshold)
	report := l.report()
	want := fmt.Sprintf(":%d) stopped at 00:0", r.agents[0].cmd.Process.Pid)
	gaps := report.gapsButUnanswered()
	check.True(t, len(gaps) == 1 && strings.Contains(gaps[0], want) && strings.Contains(gaps[0], "the agent was interrupted"), "%q, want %s", gaps, want)
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
}

// An agent that stands still is lost: it is named, its clients count as crashed, the run is incomplete, and the other goes
// on. When the agent goes on, it stops its clients and releases.
func TestAnAgentThatStandsStillIsLost(t *testing.T) {
	long(t, "the coordinator waits until an agent is given up")
	r := newAgentRig(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "2", "--ttl", "1s", "--duration", "9s", "--json")
	stopProcess(t, r.agents[0].cmd.Process)
	stopped := time.Now()
	l.says("was lost at")
	took := time.Since(stopped)
	check.True(t, !testtier.Proving() || took <= 4*time.Second, "the agent was named after %s", took)
	continueProcess(t, r.agents[0].cmd.Process)
	r.agents[0].says("goes on without it")
	l.exits(exitThreshold)
	report := l.report()
	gaps := report.gapsButUnanswered()
	check.True(t, report.Verdict.Safe && len(gaps) == 1, "%+v", report.Verdict)
	for _, a := range report.Agents {
		lost := strings.HasSuffix(a.Name, fmt.Sprintf(":%d", r.agents[0].cmd.Process.Pid))
		check.True(t, a.Lost == lost && a.Figures["acquired.count"] != 0 && (!lost || a.Figures["holding.count"] == 0), "stopped is %t, but %+v", lost, a)
		if lost {
			check.Contains(t, fmt.Sprint(gaps), fmt.Sprintf("The run is incomplete: agent %d (", a.Number))
		}
	}
	check.Contains(t, l.errs.String(), "inconclusive: The run is incomplete")
	r.load("--agents", "2", "--duration", "1s").exits(exitFine)
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
}

// Too few agents: the coordinator says so and takes its tickets back. An agent that comes later does not run.
func TestTooFewAgents(t *testing.T) {
	long(t, "agents wait for others that do not come")
	r := newAgentRig(t, 1, nil)
	l := r.load("--agents", "3", "--agent-wait", "2s", "--duration", "10m")
	l.exits(exitFailure)
	if text := l.errs.String(); !strings.Contains(text, "locktop: 1 of 3 agents came within 2 s: start locktop agent --control with this control server on more machines\n") {
		t.Errorf("it says %q", text)
	}
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
	r.agents[0].says("does not start: 1 of 3 agents came within 2 s")
	n := strings.Count(r.agents[0].errs.String(), " of 3, ")
	check.True(t, n == 1, "the agent took %d tickets", n)
	r.agents = append(r.agents, spawn(t, "agent", "--control", "redis://"+r.control.Addr()))
	r.load("--agents", "2", "--duration", "1s").exits(exitFine)
	late := r.agents[1].errs.String()
	n = strings.Count(late, "clients on")
	check.True(t, n == 1, "the late agent ran %d times: %s", n, late)
}

func TestTheCoordinatorNamesTheAgentThatRefuses(t *testing.T) {
	t.Parallel()
	r := newAgentRig(t, 0, nil)
	l := r.load("--agents", "2", "--duration", "10m")
	control := clientTo(r.t, r.control.Addr())
	popped := check.Must(control.BLPop(t.Context(), longestWait, "locktop:agents:tickets").Result())(t)
	var ticket struct {
		Run   string
		Agent int
	}
	check.NoError(t, json.Unmarshal([]byte(popped[1]), &ticket))
	refused := fmt.Sprintf(`{"message":"refused","agent":%d,"name":"host-b:7","error":"this agent may not load %s"}`, ticket.Agent, r.target.Addr())
	check.NoError(t, control.XAdd(t.Context(), &redis.XAddArgs{Stream: "locktop:agents:{" + ticket.Run + "}:messages", Values: []any{"json", refused}}).Err())
	l.exits(exitFailure)
	want := "locktop: agent host-b:7 refuses: this agent may not load " + r.target.Addr() + "\n"
	check.True(t, strings.HasSuffix(l.errs.String(), want), "it says %q, want %s", l.errs.String(), want)
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
}

// An agent refuses plans that it must not run, and connects to no server of theirs.
func TestAnAgentRefusesPlans(t *testing.T) {
	long(t, "it runs plans by agents for seconds")
	r := newAgentRig(t, 1, func(int) []string { return []string{"--allow", "redis://10.0.0.9:6379"} })
	control := clientTo(r.t, r.control.Addr())
	local := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer local.Close()
	member := servertest.RedisForTest(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "192.0.2.2")
	elsewhere := fmt.Sprint("192.0.2.2:", member.Addr()[strings.LastIndexByte(member.Addr(), ':')+1:])
	for i, c := range []struct {
		target map[string]any
		want   string
	}{
		{map[string]any{"addresses": []string{"192.0.2.1:6379"}}, "this agent may not load 192.0.2.1:6379: --allow redis://192.0.2.1:6379 allows it"},
		{map[string]any{"addresses": []string{local.Addr().String(), "10.0.0.1:6379"}}, "this agent may not load 10.0.0.1:6379: --allow redis://10.0.0.1:6379 allows it"},
		{map[string]any{"addresses": []string{"10.0.0.9:6380"}}, "this agent may not load 10.0.0.9:6380: --allow redis://10.0.0.9:6380 allows it"},
		{map[string]any{"cluster": true, "addresses": []string{member.Addr()}}, "this agent may not load " + elsewhere + ": --allow redis://" + elsewhere + " allows it"},
	} {
		text, err := json.Marshal(map[string]any{"protocol": 1, "agents": 1, "scenario": "clients: 4\nkeys: {prefix: 'p:'}\n", "target": c.target})
		check.NoError(t, err)
		run := fmt.Sprintf("run%d", i)
		pipe := control.Pipeline()
		pipe.Set(t.Context(), "locktop:agents:{"+run+"}:plan", text, time.Minute)
		pipe.RPush(t.Context(), "locktop:agents:tickets", fmt.Sprintf(`{"run":%q,"agent":1}`, run))
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := control.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"locktop:agents:{" + run + "}:messages", "0"}, Block: 20 * time.Second}).Result()
		check.Require(t, err == nil, "%v: %v", c.target, err)
		m := decoded[map[string]any](t, got[0].Messages[0].Values["json"].(string))
		if m["message"] != "refused" || m["error"] != c.want || !strings.HasSuffix(fmt.Sprint(m["name"]), fmt.Sprintf(":%d", r.agents[0].cmd.Process.Pid)) {
			t.Errorf("%v: %v, want %s", c.target, m, c.want)
		}
		r.agents[0].says("refused a run: " + c.want)
	}
	check.NoError(t, local.(*net.TCPListener).SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := local.Accept()
	check.ErrorIs(t, err, os.ErrDeadlineExceeded, "it has connected to a server of a plan that it refuses")
	check.NoError(t, control.FlushAll(t.Context()).Err())
	r.load("--agents", "1", "--duration", "1s").exits(exitFine) // it still serves
}

// Agents whose clocks differ by 10 s prove that two of them were inside at once.
func TestAgentsWithWrongClocksFindABrokenLock(t *testing.T) {
	long(t, "it runs a load by agents for seconds")
	r := newAgentRig(t, 2, func(i int) []string { return []string{"--clock-offset", []string{"5s", "-5s"}[i]} })
	l := r.load("blind-delete", "--agents", "2", "--json")
	l.exits(exitFine) // a scene that shows what it should
	report := l.report()
	across := false
	for _, e := range report.Witness.Examples {
		for _, other := range e.Others {
			across = across || len(e.Client) == len("client-100001") && e.Client[:len("client-1")] != other[:len("client-1")]
		}
	}
	check.True(t, across && report.Witness.Overlaps != 0 && report.Witness.Excused == 0, "no overlap between two agents: %+v", report.Witness)
	var clocks []float64
	for _, a := range report.Agents {
		clocks = append(clocks, a.Clock)
	}
	slices.Sort(clocks)
	check.True(t, math.Abs(clocks[0]+5000) <= 200 && math.Abs(clocks[1]-5000) <= 200, "the clocks are off by %v ms", clocks)
	wantNoKeys(t, r.control.Addr(), r.target.Addr())
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
