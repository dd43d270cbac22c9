package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/loadgen"
	"locktop/loadgen/agents"
	"locktop/loadgen/report"
)

// agentOptions holds the settings of an agent.
type agentOptions struct {
	control string
	allow   []string
	once    bool
	events  string
	shift   time.Duration // of the clock, for tests
}

func (o *agentOptions) flags() *pflag.FlagSet {
	set := flagSection("Agent")
	set.StringVar(&o.control, "control", "", "`address` of the Redis server at which the agent waits for work; REDISCLI_AUTH is its password unless the address has one")
	set.StringSliceVar(&o.allow, "allow", nil, "`address` of a server that plans may load, with the user and password of this agent, which others can read in the process list; may be repeated (default: only servers on this machine)")
	set.BoolVar(&o.once, "once", false, "exit after one run")
	set.StringVar(&o.events, "events", "", "`file` for all events of a run, one JSON object per line")
	set.DurationVar(&o.shift, "clock-offset", 0, "")
	_ = set.MarkHidden("clock-offset")
	return set
}

// agentRun is a run of agent.
type agentRun struct {
	*program
	flags   connect.Flags
	options agentOptions
	allowed map[string]*connect.Flags // flags of each server that plans may load, by host:port
}

func (p *program) agentCommand() *cobra.Command {
	a := &agentRun{program: p}
	c, o := &a.flags, &a.options
	return withFlags(&cobra.Command{
		Use:   "agent --control ADDRESS [flags]",
		Short: "Run clients for a load on another machine",
		Long: `Waits at a Redis server, the control server, for work of locktop load --control, and
runs its share of the clients. An agent serves one run after another until it is
interrupted.

An agent runs only clients that lock. It refuses a plan of another version, and a
target that is not on this machine, unless --allow names it. Each node that a
cluster announces is such a target. A plan has no passwords: the user and the
password for a target are those in --allow.

During a run, an agent that does not reach the control server for 10 s, or whose
coordinator is gone, stops its clients and releases what they hold.`,
		Example: `  locktop agent --control redis://ctl:6379
  locktop agent --control redis://ctl:6379 --allow redis://target:6379 --once
  for h in a b c; do ssh $h locktop agent --control redis://ctl:6379 --allow redis://db:6379 & done`,
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context())
		},
	}, o.flags(), subset(c.FlagSet(), func(name string) bool { // for the control server and for all targets
		return slices.Contains([]string{"cacert", "cert", "key", "sni", "insecure", "timeout", "debug"}, name)
	}))
}

func (r *agentRun) run(ctx context.Context) error {
	c, o := &r.flags, &r.options
	if o.control == "" {
		return usageErrorf("as in --control redis://ctl:6379", "an agent needs --control: where it waits for work")
	}
	control, err := r.connect(ctx, c.WithURL("--control", o.control))
	if err != nil {
		return err
	}
	defer control.Close()
	if err := r.allow(); err != nil {
		return err
	}
	a := agents.Agent{
		Control: control.Client,
		Open:    r.openTarget,
		Note:    func(text string) { r.notes.note("%s", text) },
		Listen:  agentFiles(o.events),
		Now:     func() time.Time { return time.Now().Add(o.shift) },
	}
	r.notes.note("waiting for work at %s", control.Title)
	return a.Serve(ctx, o.once)
}

// allow sets allowed.
func (r *agentRun) allow() error {
	r.allowed = make(map[string]*connect.Flags)
	for _, url := range r.options.allow {
		one := r.flags.Elsewhere("--allow", url)
		addr, _, err := one.Server()
		if err != nil {
			return err
		}
		r.allowed[addr] = one
	}
	return nil
}

// openTarget connects to the servers of a plan. No connection goes to a server on another
// machine that is not allowed, also if a cluster announces it.
func (r *agentRun) openTarget(ctx context.Context, t agents.Target) (on loadgen.Servers, release func(), err error) {
	permit := func(addr string) error {
		if r.allowed[addr] == nil && !agents.Local(addr) {
			return fmt.Errorf("this agent may not load %s: --allow redis://%s allows it", addr, addr)
		}
		return nil
	}
	for _, addr := range t.Addresses { // before the first connection
		if err := permit(addr); err != nil {
			return on, nil, err
		}
	}
	var opened []*connect.Target
	release = func() {
		for _, one := range opened {
			one.Close()
		}
	}
	for _, addr := range t.Addresses {
		flags, found := r.allowed[addr]
		if !found {
			flags = r.flags.Elsewhere("--control", "redis://"+addr)
		}
		if flags, err = flags.WithDatabase(fmt.Sprint(t.DB)); err != nil {
			release()
			return on, nil, err
		}
		if t.Cluster {
			flags = flags.AsCluster()
		}
		one, err := r.connect(ctx, flags.Only(permit))
		if err != nil {
			release()
			return on, nil, err
		}
		opened = append(opened, one)
		on.Nodes = append(on.Nodes, one.Client)
	}
	if on.Redis, on.Failover, err = opened[0].Writer(); err != nil {
		release()
		return on, nil, err
	}
	if len(on.Nodes) == 1 {
		on.Nodes = nil
	} else {
		on.Redis = on.Nodes[0]
	}
	return on, release, nil
}

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
	case len(c.Sentinels) > 0:
		return usageErrorf("name the master with --url", "agents do not ask Sentinels")
	}
	return nil
}

// target returns the servers of a load, for agents on other machines.
func (o *loadOptions) target(c *connect.Flags) (agents.Target, error) {
	t := agents.Target{Cluster: c.Cluster}
	for _, node := range nodes(c, o.redlock) {
		addr, db, err := node.Server()
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
		Patience: o.joining, Note: func(text string) { p.notes.note("%s", text) },
	})
	if err != nil {
		control.Close()
		return nil, nil, usageErrorf("", "%v", strings.TrimPrefix(err.Error(), "scenario: "))
	}
	return load, control.Close, nil
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
