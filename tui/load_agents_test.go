package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// fakeAgents is a load by agents that only returns what the test sets.
type fakeAgents struct {
	*fakeLoad
	agents     []loadgen.AgentState
	incomplete []string
	results    *witness.Results
	refused    string        // name of the scenario that the agents cannot run
	waits      chan struct{} // Start waits until Stop closes it; nil: Start does not wait
}

func (g *fakeAgents) Start() error {
	if g.waits == nil {
		return g.fakeLoad.Start()
	}
	<-g.waits
	return errors.New("the start was cancelled")
}

func (g *fakeAgents) Agents() []loadgen.AgentState { return slices.Clone(g.agents) }
func (g *fakeAgents) Incomplete() []string         { return slices.Clone(g.incomplete) }

func (g *fakeAgents) Witness() *witness.Results {
	if g.results == nil {
		return nil
	}
	r := *g.results
	return &r
}

func (g *fakeAgents) Check(s loadgen.Scenario) error {
	if s.Name != "" && s.Name == g.refused || s.Lock.Kind == loadgen.Exec {
		return errors.New("agents do not do this")
	}
	_, err := s.Shares(max(1, len(g.agents)))
	return err
}

func (g *fakeAgents) Stop() error {
	if g.waits != nil {
		close(g.waits)
		return nil
	}
	return g.fakeLoad.Stop()
}

// fourAgents returns a load by four agents, of which one is lost and one has stopped.
func fourAgents() *fakeAgents {
	g := &fakeAgents{fakeLoad: runningLoad()}
	for i := range 4 {
		m := loadgen.Metrics{Began: midnight, Running: true, Seconds: []loadgen.Second{{Acquired: int64(270 + 10*i)}}}
		m.Acquired, m.Clients.Total, m.Latency.Wait.P99 = 28_000, 5, time.Duration(40+3*i)*time.Millisecond
		g.agents = append(g.agents, loadgen.AgentState{
			Number: i + 1, Name: fmt.Sprintf("host-%c:%d", 'a'+i, 4711+i), Clients: 5, Ready: true, Metrics: m,
			Clock: time.Duration(i*i-2) * 700 * time.Millisecond, Seen: time.Duration(200+100*i) * time.Millisecond,
		})
	}
	g.agents[1].Lost, g.agents[1].Seen = true, 41*time.Second
	g.agents[3].Stopped = true
	g.incomplete = []string{"The run is incomplete: agent 2 (host-b:4712) was lost at 00:53."}
	g.results = &witness.Results{P50: 80 * time.Microsecond, P99: 300 * time.Microsecond}
	g.results.Holds, g.results.Proven = 112_300, 112_298
	g.events = []loadgen.Event{
		{Seq: 1, At: midnight, Kind: loadgen.FaultBegan, Fault: loadgen.Freeze, Client: 300_002, Key: "load:{0}:2"},
		{Seq: 2, At: midnight, Kind: loadgen.Incomplete, Text: g.incomplete[0]},
	}
	return g
}

// agentsConfig returns a Config with a load by agents.
func agentsConfig(w Config) (Config, *fakeAgents) {
	g := fourAgents()
	w.Load = g
	return w, g
}

func TestTheAgentsOfALoad(t *testing.T) {
	for name, play := range map[string]func(d *driver, g *fakeAgents){
		"the load page shows the agents": func(d *driver, g *fakeAgents) {
			for _, size := range [][2]int{{80, 24}, {120, 35}, {140, 40}} {
				d.size(size[0], size[1]).press("3").wait(tickInterval)
				for _, row := range []struct{ name, figures string }{
					{"host-a:4711", "5 270 40 ms +1.4 s 200 ms running"},
					{"host-b:4712", "5 0 43 ms +700 ms 41 s lost"},
					{"host-c:4713", "5 290 46 ms -1.4 s 400 ms running"},
					{"host-d:4714", "5 0 49 ms -4.9 s - stopped"},
				} {
					_, figures, _ := strings.Cut(d.line(" "+row.name+" "), row.name)
					got := strings.Join(strings.Fields(figures), " ")
					check.True(d.t, got == strings.ReplaceAll(row.figures, " - ", " "+d.app.screen.glyphs.None+" "),
						"%v: %s: %q, want %q", size, row.name, got, row.figures)
				}
				d.want("witness 0 overlaps in the order of 112,298 of 112,300 holds", "agent 2 (host-b:4712) was lost at 00:53", "0 overlaps, but the run is incomplete")
				d.want("client-300002 freezes while holding load:{0}:2")
			}
			d.press("p").wantNot("host-a", "host-b", "load:{0}:2")
		},
		// Overlaps between the clients of two agents are known to the witness only.
		"overlaps of the witness are an alarm": func(d *driver, g *fakeAgents) {
			d.press("3").wait(tickInterval).want("no overlaps")
			g.results.Overlaps, g.results.Excused = 5, 2
			d.wait(2*tickInterval).want("▲ 3 OVERLAPS in the order of the witness: two clients held it", "▲ 3 overlaps").wantNot("0 overlaps", "no overlaps")
			g.results.Overlaps, g.incomplete, g.results.Unseen = 2, nil, 7
			g.change(func(m *loadgen.Metrics) { m.Oracles = 4 })
			d.wait(2*tickInterval).want("✓ no overlap was seen", "✓ no overlap seen", "each agent saw its own clients, the witness those with valid leases.", "The witness did not answer 7 times").wantNot("mutual exclusion held", "no overlaps")
		},
		"a fault hits a client of the chosen agent": func(d *driver, g *fakeAgents) {
			d.wait(tickInterval).press("3", "f").want("a client of any agent at random").press("c").want("fault injected: crash")
			d.press("l", "l", "l").want("▌3 host-c").press("f").want("a client of agent 3 at random").press("z").want("fault injected: freeze")
			d.press("f", "v").want("fault injected: flush").press("h", "h", "h").wantNot("▌3 host-c").press("h").want("▌4 host-d").press("l", "f").want("any agent")
			var got []string
			for _, f := range g.injected {
				got = append(got, fmt.Sprintf("%s %d", f.Kind, f.Agent))
			}
			check.Equal(d.t, strings.Join(got, ", "), "crash 0, freeze 3, flush 0", "struck")
		},
		// The number of clients is that of the agents that are still there.
		"the clients of a lost agent are not counted": func(d *driver, g *fakeAgents) {
			d.wait(tickInterval).press("3")
			clients := g.Scenario().Clients
			g.agents[1].Lost, g.agents[1].Clients, g.agents[1].Metrics = true, 7, loadgen.Metrics{}
			d.wait(2*tickInterval).want(fmt.Sprintf("%d of %d clients", clients-7, clients), "each agent's at its last report")
		},
		// An agent that needs attention is always shown.
		"many agents fit the page": func(d *driver, g *fakeAgents) {
			for i := 4; i < 300; i++ {
				a := g.agents[0]
				a.Number, a.Name = i+1, fmt.Sprintf("host:%d", i+1)
				a.Lost = i == 200
				g.agents = append(g.agents, a)
			}
			for _, size := range [][2]int{{80, 24}, {120, 35}, {140, 40}} {
				d.size(size[0], size[1]).press("3").wait(tickInterval).want("2 host-b:4712", "201 host:201", "more: 29")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, g := agentsConfig(testConfig())
			drive(t, w, func(d *driver) { play(d, g) })
		})
	}
}

func TestThePageSaysThatItWaitsForAgents(t *testing.T) {
	w, g := agentsConfig(testConfig())
	g.m = loadgen.Metrics{}
	g.incomplete, g.results, g.events = nil, nil, nil
	for i := range g.agents {
		g.agents[i] = loadgen.AgentState{Number: i + 1, Clients: 5}
	}
	driveNew(t, func(*testing.T) Config {
		g.waits = make(chan struct{}) // of the bubble
		return w
	}, func(d *driver) {
		d.size(80, 24).press("3", "s").wait(tickInterval).want("waiting for 4 agents: none is there; s ends the wait", "not there yet")
		for _, i := range []int{0, 2} {
			g.agents[i].Ready, g.agents[i].Name = true, fmt.Sprintf("host-%d:1", i)
		}
		d.wait(2*tickInterval).want("waiting for 4 agents: 2 are there", "host-0:1", "host-2:1", "ready").wantNot("nothing has run")
		for _, key := range []string{"+", "right", "f", "n", "enter"} {
			d.press(key).want("waiting for 4 agents: 2 are there; s ends the wait")
		}
		check.True(t, g.s == nil && d.app.dialog == nil, "the scenario has become %v, the dialog %v", g.s, d.app.dialog)
		d.press("s").want("the start was cancelled", "nothing has run yet").wantNot("waiting for 4 agents")
	})
}

func TestWhatAgentsCannotRunIsRefusedInOneLine(t *testing.T) {
	w, g := agentsConfig(testConfig())
	for _, name := range []string{"hot-key", "versus", "crash"} {
		w.Scenes = append(w.Scenes, loadgen.Scenario{Name: name}.WithDefaults())
	}
	g.refused = "versus"
	drive(t, w, func(d *driver) {
		d.press("m").want("Choose a scene", "agents do not do this").press("c").want("agents do not do this").press("3")
		d.press("n").wait(tickInterval).want("scene 1 of 3").press("n").wait(tickInterval).want("scene 3 of 3").press("b").wait(tickInterval).want("scene 1 of 3")
		for g.Scenario().Clients > 4 {
			d.press("-").wait(tickInterval)
		}
		d.press("-").want("3 clients are too few for 4 agents")
		check.Equal(t, g.Scenario().Clients, 4, "clients")
	})
}
