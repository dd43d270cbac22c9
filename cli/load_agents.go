package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/loadgen"
	"locktop/loadgen/agents"
	"locktop/loadgen/report"
	"locktop/tui/widget"
)

// addAgentFlags adds the flags of a load by agents.
func (o *loadOptions) addAgentFlags(set *pflag.FlagSet) {
	set.StringVar(&o.control, "control", "", "`address` of a Redis server at which locktop agent waits for work: the agents run the clients")
	set.IntVar(&o.agents, "agents", 0, "`number` of agents")
	set.DurationVar(&o.joining, "agent-wait", time.Minute, "maximum `time` to wait for the agents")
}

// checkAgents returns an error for flags that do not go with agents.
func (o *loadOptions) checkAgents(c *connect.Flags) error {
	if o.control == "" {
		if o.agents != 0 {
			return usageErrorf("as in --control redis://ctl:6379 --agents 4", "--agents needs --control, at which the agents wait")
		}
		return nil
	}
	switch {
	case o.demo:
		return usageErrorf("", "--demo and --control contradict each other: agents load a server that runs")
	case o.agents < 1 || o.agents > loadgen.MaxAgents:
		return usageErrorf("", "--control needs --agents: how many, 1 to %d", loadgen.MaxAgents)
	case o.files.events != "":
		return usageErrorf("locktop agent --events does", "--events: the events stay with the agents")
	case c.Sentinel():
		return usageErrorf("name the master with --url", "agents do not ask Sentinels")
	}
	return nil
}

// target returns the servers of a load, for agents on other machines.
func (o *loadOptions) target(c *connect.Flags) (agents.Target, error) {
	t := agents.Target{Cluster: c.Cluster()}
	flags := []*connect.Flags{c}
	if len(o.redlock) > 0 {
		flags = nil
		for _, url := range o.redlock {
			flags = append(flags, c.WithURL("--redlock", url))
		}
	}
	for _, f := range flags {
		addr, db, err := f.Server()
		if err != nil {
			return t, err
		}
		t.Addresses, t.DB = append(t.Addresses, addr), db
	}
	return t, nil
}

// runAgents has agents run the load, and reports.
func (p *program) runAgents(ctx context.Context, c *connect.Flags, o *loadOptions, on *loadServers, s loadgen.Scenario) error {
	load, closeControl, err := p.openAgents(ctx, c, o, on, s)
	if err != nil {
		return err
	}
	defer closeControl()
	defer func() { _ = load.Close() }()
	stop := context.AfterFunc(ctx, load.CancelStart)
	defer stop()
	v := &variant{run: load, agents: load}
	if v.files, err = o.files.open(0); err != nil {
		return err
	}
	p.announce(on, load.Scenario())
	return p.drive(ctx, o, []*variant{v})
}

// openAgents connects to the control server and returns a load that is not started.
func (p *program) openAgents(ctx context.Context, c *connect.Flags, o *loadOptions, on *loadServers, s loadgen.Scenario) (load *agents.Load, release func(), err error) {
	target, err := o.target(c)
	if err != nil {
		return nil, nil, err
	}
	control, err := p.connect(ctx, c.Elsewhere("--control", o.control))
	if err != nil {
		return nil, nil, fmt.Errorf("control server: %w", err)
	}
	load, err = agents.New(agents.Config{
		Control: control.Client, Servers: on.Servers, Target: target, Scenario: s, Agents: o.agents,
		Patience: o.joining, Note: func(text string) { p.notes.note("%s", widget.Plain(text)) },
	})
	if err != nil {
		control.Close()
		return nil, nil, usageErrorf("", "%v", strings.TrimPrefix(err.Error(), "scenario: "))
	}
	return load, control.Close, nil
}

// addAgents adds to a report what a load by agents knows.
func (s *variant) addAgents(r *report.Result) {
	if s.agents == nil {
		return
	}
	r.Witness, r.Gaps, r.Agents = s.agents.Witness(), s.agents.Incomplete(), s.agents.Agents()
}

// agentFiles opens the file of an agent's events for a run.
func agentFiles(name string) func(run string, agent int) (func(loadgen.Event), func() error, error) {
	if name == "" {
		return nil
	}
	return func(string, int) (func(loadgen.Event), func() error, error) {
		f, err := outputFiles{events: name}.open(0)
		if err != nil {
			return nil, nil, err
		}
		return f.listener(), func() error { return f.finish(report.Result{}) }, nil
	}
}
