//go:build unix

package proofs

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

// agentProcesses is agents in processes of their own, with a control server and a target.
type agentProcesses struct {
	t               *testing.T
	control, target *server.Child
	agents          []*labtest.Program
}

func newAgentProcesses(t *testing.T, agents int, flags func(agent int) []string) *agentProcesses {
	t.Helper()
	r := &agentProcesses{t: t, control: servertest.RedisForTest(t), target: servertest.RedisForTest(t)}
	for i := range agents {
		args := []string{"agent", "--control", "redis://" + r.control.Addr()}
		if flags != nil {
			args = append(args, flags(i)...)
		}
		r.agents = append(r.agents, labtest.Start(t, args...))
	}
	return r
}

// load starts a coordinator.
func (r *agentProcesses) load(args ...string) *labtest.Program {
	r.t.Helper()
	return labtest.Start(r.t, append([]string{"load", "-u", "redis://" + r.target.Addr(), "--control", "redis://" + r.control.Addr(), "--threshold", "outage.longest < 1m"}, args...)...)
}

// running starts a coordinator, and returns when its clients lock.
func (r *agentProcesses) running(args ...string) *labtest.Program {
	r.t.Helper()
	l := r.load(args...)
	l.Says("p99") // progress
	return l
}

// wantNoKeys fails the test if one of the servers has keys.
func (r *agentProcesses) wantNoKeys(servers ...*server.Child) {
	r.t.Helper()
	for _, child := range servers {
		keys, err := labtest.Client(r.t, child.Addr(), server.ClientOptions{}).Keys(r.t.Context(), "*").Result()
		check.True(r.t, err == nil && len(keys) == 0, "keys left behind at %s: %q, %v", child.Addr(), keys, err)
	}
}

// wantNoLocks fails the test if a lock is held on the target, or a key has no TTL. Queues and
// fences may stay for a time.
func (r *agentProcesses) wantNoLocks() {
	r.t.Helper()
	rdb := labtest.Client(r.t, r.target.Addr(), server.ClientOptions{})
	for _, key := range rdb.Keys(r.t.Context(), "*").Val() {
		if ttl := rdb.TTL(r.t.Context(), key).Val(); ttl == -1 || !strings.Contains(key, "::") && !strings.HasSuffix(key, ":run") {
			r.t.Errorf("the key %s is left, with a TTL of %s", key, ttl)
		}
	}
}

// agentsReport returns the report of a run by agents, whose sums must hold.
func agentsReport(t *testing.T, l *labtest.Program) loadReport {
	t.Helper()
	r := labtest.Decoded[loadReport](t, l.Out.String())
	for name, sums := range map[string][2]float64{
		"arrivals": {r.Figures["arrivals.count"], r.Figures["acquired.count"] + r.Figures["timed_out.count"] + r.Figures["refused.count"] + r.Figures["errors.count"] + r.Figures["waiting.count"]},
		"acquired": {r.Figures["acquired.count"], r.Figures["released.count"] + r.Figures["expired.count"] + r.Figures["lost.count"] + r.Figures["unconfirmed.count"] + r.Figures["abandoned.count"] + r.Figures["holding.count"]},
	} {
		check.True(t, sums[0] == sums[1], "the sum of %s does not hold: %v", name, r.Figures)
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
		for _, e := range labtest.DecodedLines[map[string]any](t, string(check.Must(os.ReadFile(file))(t))) {
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
	testtier.Long(t, "it runs a load by agents over a pause")
	t.Parallel()
	dir := t.TempDir()
	r := newAgentProcesses(t, 2, func(i int) []string { return []string{"--once", "--events", inDir(dir, i)} })
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--duration", "8s", "--json")
	check.NoError(t, r.control.Freeze())
	time.Sleep(3 * time.Second) // the length of the pause
	check.NoError(t, r.control.Continue())
	l.Exits(exitThreshold) // the witness did not answer
	report := agentsReport(t, l)
	report.wantEvents(t, inDir(dir, 0), inDir(dir, 1))
	gaps := report.gapsButUnanswered()
	check.True(t, len(gaps) == 0, "%q", gaps)
	check.True(t, report.Figures["acquired.count"] >= 200 && report.Verdict.Safe && report.Witness.Unseen != 0 && len(report.Seconds) >= 8,
		"%v, %+v, %d seconds", report.Figures, report.Witness, len(report.Seconds))
	for _, a := range r.agents {
		a.Exits(0)
	}
	r.wantNoKeys(r.control, r.target)
}

// When the control server stops for 15 s, all agents stop, release their locks, and say why.
func TestAgentsStopWithoutTheControlServer(t *testing.T) {
	testtier.Long(t, "agents wait until a server is given up")
	t.Parallel()
	r := newAgentProcesses(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--ttl", "1m", "--duration", "10m", "--json")
	check.NoError(t, r.control.Freeze())
	frozen := time.Now()
	for _, a := range r.agents {
		a.Exits(exitFailure)
		took := time.Since(frozen)
		check.True(t, took >= 9*time.Second && (!testtier.Proving() || took <= 20*time.Second), "it stopped after %s", took)
		text := a.Errors.String()
		check.True(t, strings.HasSuffix(text, "locktop: the control server has not answered for 10 s\n"), "it says %q", text)
	}
	r.wantNoLocks()
	time.Sleep(time.Until(frozen.Add(15 * time.Second))) // the length of the pause
	check.NoError(t, r.control.Continue())
	l.Exits(exitThreshold)
	report := agentsReport(t, l)
	gaps := fmt.Sprint(report.Verdict.Gaps)
	check.True(t, strings.Contains(gaps, "The control server has not answered for 10 s") || strings.Contains(gaps, "was lost at"), "%v", gaps)
	for _, a := range report.Agents {
		check.True(t, a.Lost && a.Figures["holding.count"] <= 0 && report.Figures["holding.count"] <= 0, "%+v, of all %v", a, report.Figures)
	}
	r.wantNoKeys(r.target)
}

// When the coordinator is killed, the agents end the run, release their locks, and serve the next run.
func TestAgentsEndTheRunOfAKilledCoordinator(t *testing.T) {
	testtier.Long(t, "agents wait until the coordinator is given up")
	t.Parallel()
	r := newAgentProcesses(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "4", "--ttl", "1m", "--kind", "fair", "--fence", "true", "--duration", "10m")
	l.Signal(os.Kill)
	for _, a := range r.agents {
		a.Says("the coordinator is gone")
	}
	r.wantNoLocks()
	r.load("--agents", "2", "--duration", "1s").Exits(0)
}

// An interrupted coordinator reports, leaves no key, and the agents serve the next run.
func TestAnInterruptedCoordinatorReports(t *testing.T) {
	testtier.Long(t, "it runs a load by agents for seconds")
	t.Parallel()
	r := newAgentProcesses(t, 2, nil)
	for range 2 {
		l := r.running("--agents", "2", "--clients", "20", "--kind", "fair", "--fence", "true", "--duration", "10m")
		l.Signal(os.Interrupt)
		l.Exits(exitInterrupted)
		for _, part := range []string{"arrivals ", "acquired ", "No overlap was seen: each agent saw its own clients, the witness those with valid leases.", "Witness: 0 overlaps"} {
			check.Contains(t, l.Out.String(), part)
		}
		check.False(t, strings.Contains(l.Out.String(), "incomplete"), "the report is incomplete:\n%s", l.Out)
		r.wantNoKeys(r.control, r.target)
	}
}

func TestAnInterruptedAgentIsNamed(t *testing.T) {
	testtier.Long(t, "it runs a load by agents for seconds")
	t.Parallel()
	r := newAgentProcesses(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "2", "--duration", "5s", "--json")
	r.agents[0].Signal(os.Interrupt)
	r.agents[0].Exits(exitInterrupted)
	l.Exits(exitThreshold)
	report := agentsReport(t, l)
	want := fmt.Sprintf(":%d) stopped at 00:0", r.agents[0].Process.Pid)
	gaps := report.gapsButUnanswered()
	check.True(t, len(gaps) == 1 && strings.Contains(gaps[0], want) && strings.Contains(gaps[0], "the agent was interrupted"), "%q, want %s", gaps, want)
	r.wantNoKeys(r.control, r.target)
}

// An agent that stands still is lost: it is named, its clients count as crashed, the run is incomplete, and the other goes
// on. When the agent goes on, it stops its clients and releases.
func TestAnAgentThatStandsStillIsLost(t *testing.T) {
	testtier.Long(t, "the coordinator waits until an agent is given up")
	t.Parallel()
	r := newAgentProcesses(t, 2, nil)
	l := r.running("--agents", "2", "--clients", "20", "--keys", "2", "--ttl", "1s", "--duration", "9s", "--json")
	r.agents[0].Signal(syscall.SIGSTOP)
	stopped := time.Now()
	l.Says("was lost at")
	took := time.Since(stopped)
	check.True(t, !testtier.Proving() || took <= 4*time.Second, "the agent was named after %s", took)
	r.agents[0].Signal(syscall.SIGCONT)
	r.agents[0].Says("goes on without it")
	l.Exits(exitThreshold)
	report := agentsReport(t, l)
	gaps := report.gapsButUnanswered()
	check.True(t, report.Verdict.Safe && len(gaps) == 1, "%+v", report.Verdict)
	for _, a := range report.Agents {
		lost := strings.HasSuffix(a.Name, fmt.Sprintf(":%d", r.agents[0].Process.Pid))
		check.True(t, a.Lost == lost && a.Figures["acquired.count"] != 0 && (!lost || a.Figures["holding.count"] == 0), "stopped is %t, but %+v", lost, a)
		if lost {
			check.Contains(t, fmt.Sprint(gaps), fmt.Sprintf("The run is incomplete: agent %d (", a.Number))
		}
	}
	check.Contains(t, l.Errors.String(), "inconclusive: The run is incomplete")
	r.load("--agents", "2", "--duration", "1s").Exits(0)
	r.wantNoKeys(r.control, r.target)
}

// Too few agents: the coordinator says so and takes its tickets back. An agent that comes later does not run.
func TestTooFewAgents(t *testing.T) {
	testtier.Long(t, "agents wait for others that do not come")
	t.Parallel()
	r := newAgentProcesses(t, 1, nil)
	l := r.load("--agents", "3", "--agent-wait", "2s", "--duration", "10m")
	l.Exits(exitFailure)
	if text := l.Errors.String(); !strings.Contains(text, "locktop: 1 of 3 agents came within 2 s: start locktop agent --control with this control server on more machines\n") {
		t.Errorf("it says %q", text)
	}
	r.wantNoKeys(r.control, r.target)
	r.agents[0].Says("does not start: 1 of 3 agents came within 2 s")
	n := strings.Count(r.agents[0].Errors.String(), " of 3, ")
	check.True(t, n == 1, "the agent took %d tickets", n)
	r.agents = append(r.agents, labtest.Start(t, "agent", "--control", "redis://"+r.control.Addr()))
	r.load("--agents", "2", "--duration", "1s").Exits(0)
	late := r.agents[1].Errors.String()
	n = strings.Count(late, "clients on")
	check.True(t, n == 1, "the late agent ran %d times: %s", n, late)
}

// An agent refuses plans that it must not run, and connects to no server of theirs.
func TestAnAgentRefusesPlans(t *testing.T) {
	testtier.Long(t, "it runs plans by agents for seconds")
	t.Parallel()
	r := newAgentProcesses(t, 1, func(int) []string { return []string{"--allow", "redis://10.0.0.9:6379"} })
	control := labtest.Client(r.t, r.control.Addr(), server.ClientOptions{})
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
		m := labtest.Decoded[map[string]any](t, got[0].Messages[0].Values["json"].(string))
		if m["message"] != "refused" || m["error"] != c.want || !strings.HasSuffix(fmt.Sprint(m["name"]), fmt.Sprintf(":%d", r.agents[0].Process.Pid)) {
			t.Errorf("%v: %v, want %s", c.target, m, c.want)
		}
		r.agents[0].Says("refused a run: " + c.want)
	}
	check.NoError(t, local.(*net.TCPListener).SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := local.Accept()
	check.ErrorIs(t, err, os.ErrDeadlineExceeded, "it has connected to a server of a plan that it refuses")
	check.NoError(t, control.FlushAll(t.Context()).Err())
	r.load("--agents", "1", "--duration", "1s").Exits(0) // it still serves
}

// Agents whose clocks differ by 10 s prove that two of them were inside at once.
func TestAgentsWithWrongClocksFindABrokenLock(t *testing.T) {
	testtier.Long(t, "it runs a load by agents for seconds")
	t.Parallel()
	r := newAgentProcesses(t, 2, func(i int) []string { return []string{"--clock-offset", []string{"5s", "-5s"}[i]} })
	l := r.load("blind-delete", "--agents", "2", "--json")
	l.Exits(0) // a scene that shows what it should
	report := agentsReport(t, l)
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
	r.wantNoKeys(r.control, r.target)
}
