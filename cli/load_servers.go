package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/demo"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/internal/server"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
	"locktop/tui"
	"locktop/tui/widget"
)

// loadServers has the servers of a load.
type loadServers struct {
	loadgen.Servers
	ours  bool // started by this process
	title string
	close func()
}

// openLoadServers connects to the servers of the flags, or starts servers.
func (p *program) openLoadServers(ctx context.Context, c *connect.Flags, o *loadOptions, s loadgen.Scenario) (*loadServers, error) {
	quorum := s.Lock.Kind.Quorum()
	switch {
	case o.demo && len(o.redlock) > 0:
		return nil, usageErrorf("", "--demo and --redlock contradict each other")
	case o.demo:
		return startLoadServers(ctx, quorum || o.suite)
	case len(o.redlock) > 0:
		return p.dialNodes(ctx, c, o)
	case quorum:
		return nil, usageErrorf("name them with --redlock URL,URL,…, or let --demo start some", "a %s needs independent servers", s.Lock.Kind)
	}
	t, err := p.dialLocal(ctx, c, o.force)
	if err != nil {
		return nil, err
	}
	rdb, failover, err := t.Writer()
	if err != nil {
		t.Close()
		return nil, err
	}
	return &loadServers{Servers: loadgen.Servers{Redis: rdb, Failover: failover}, title: t.Title, close: t.Close}, nil
}

const loadHint = "--yes-load-this-server allows it"

// dialLocal connects to a server or a cluster. Unless force is true, all addresses must
// be on this machine.
func (p *program) dialLocal(ctx context.Context, c *connect.Flags, force bool) (*connect.Target, error) {
	remote, err := c.Remote()
	if err != nil {
		return nil, err
	}
	if remote != "" && !force {
		return nil, notLocal(loadHint, remote)
	}
	t, err := p.connect(ctx, c)
	if err != nil || force {
		return t, err
	}
	if remote, err = t.Remote(ctx); err == nil && remote != "" {
		err = notLocal(loadHint, remote)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func notLocal(hint, remote string) error {
	return usageErrorf(hint, "%s is on another machine: a load may slow down its other clients", remote)
}

// dialNodes connects to the servers of a quorum.
func (p *program) dialNodes(ctx context.Context, c *connect.Flags, o *loadOptions) (*loadServers, error) {
	g := &loadServers{title: humanize.Plural(len(o.redlock), "node"), close: func() {}}
	var titles []string
	for _, node := range nodes(c, o.redlock) {
		t, err := p.dialLocal(ctx, node, o.force)
		if err != nil {
			g.close()
			return nil, err
		}
		rest := g.close
		g.close = func() { t.Close(); rest() }
		g.Nodes, titles = append(g.Nodes, t.Client), append(titles, t.Title)
	}
	if err := connect.Distinct(ctx, titles, g.Nodes); err != nil {
		g.close()
		return nil, err
	}
	g.Redis = g.Nodes[0]
	return g, nil
}

// startLoadServers starts the servers of a quorum or one server: processes if
// redis-server is on PATH, otherwise embedded servers.
func startLoadServers(ctx context.Context, quorum bool) (*loadServers, error) {
	n := 1
	if quorum {
		n = demo.RedlockNodes
	}
	g, err := demo.StartServers(ctx, n, true)
	if errors.Is(err, server.ErrNotInstalled) {
		g, err = demo.StartServers(ctx, n, false)
	}
	if err != nil {
		return nil, fmt.Errorf("start servers for the demo: %w", err)
	}
	g.Redis = g.Nodes[0]
	if !quorum {
		g.Nodes = nil
	}
	return &loadServers{Servers: g.Servers, ours: true, title: g.Title, close: g.Close}, nil
}

// checkPrefix returns an error if other clients have keys with the scenario's prefix.
func (g *loadServers) checkPrefix(ctx context.Context, s loadgen.Scenario, force bool) error {
	if g.ours || force || s.Keys.Prefix == "" { // an empty prefix becomes a random one
		return nil
	}
	key, err := g.Occupied(ctx, s.Keys.Prefix)
	if err != nil {
		return err
	}
	if key != "" {
		return usageErrorf(loadHint, "keys of other programs have the prefix %q: %s", s.Keys.Prefix, widget.Plain(key))
	}
	return nil
}

// ownLoad opens the load of the screen on the server that the screen shows. The load
// has its own connections. ownLoad refuses the same servers as locktop load.
type ownLoad struct {
	program    *program
	connection *connect.Flags
	enabled    bool // --load is set
	options    loadOptions

	release func() // closes the load and the connections; nil before Open
}

func (o *ownLoad) flags() *pflag.FlagSet {
	set := flagSection("Load")
	set.BoolVar(&o.enabled, "load", false, "let the Load page run clients on this server, under their own prefix; loopback addresses only")
	set.StringVar(&o.options.exec, "exec", "", "`command` of a client process, for the shell: the Load page runs these clients instead of its own")
	o.options.addAgentFlags(set)
	return set
}

// refusal returns an error if the servers of c permit no load.
func (o *ownLoad) refusal(c *connect.Flags, may writeFlags) error {
	switch {
	case may.production:
		return usageErrorf("", "--load and --production contradict each other")
	case c.AllDatabases():
		return usageErrorf("choose one with -n", "--load runs in one database")
	}
	if err := o.options.checkAgents(c); err != nil {
		return err
	}
	for _, one := range nodes(c, c.Redlock) {
		if remote, err := one.Remote(); err != nil {
			return err
		} else if remote != "" {
			return notLocal("locktop load --yes-load-this-server does, without the screen", remote)
		}
	}
	return nil
}

// nodes returns the flags of each server of a Redlock with these addresses, or those of c.
func nodes(c *connect.Flags, redlock []string) []*connect.Flags {
	if len(redlock) == 0 {
		return []*connect.Flags{c}
	}
	return render.Each(redlock, func(url string) *connect.Flags { return c.WithURL("--redlock", url) })
}

// scenes returns the scenes that the servers can play: those of a quorum with --redlock, else the others.
func (o *ownLoad) scenes(c *connect.Flags) []loadgen.Scenario {
	on := loadgen.Servers{Nodes: make([]loadgen.RedisClient, len(c.Redlock))}
	return slices.DeleteFunc(o.clients(scenarios.All()...), func(s loadgen.Scenario) bool {
		return s.Lock.Kind != loadgen.Exec && s.Lock.Kind.Quorum() != (len(c.Redlock) > 0) || on.Supports(s) != nil
	})
}

// clients returns scenarios with the processes of --exec, if there are any, in place of our own clients.
func (o *ownLoad) clients(all ...loadgen.Scenario) (changed []loadgen.Scenario) {
	for _, s := range all {
		switch {
		case o.options.exec == "":
			changed = append(changed, s)
		case s.Lock.Kind.Sound() && !s.Lock.Kind.Quorum():
			changed = append(changed, s.WithClient(o.options.exec))
		}
	}
	return changed
}

// ownClients and ownProcesses are the numbers of clients of the load of the screen: of our own, and with --exec.
const (
	ownClients   = 20
	ownProcesses = 8
)

// Open implements [tui.Loader].
func (o *ownLoad) Open(ctx context.Context) (tui.Load, error) {
	quiet := *o.program
	quiet.notes = messages{to: io.Discard} // the warnings have appeared before the screen
	s := demo.Scenario(max(ownClients, o.options.agents))
	s.Name, s.Caption = "own server", "Clients fight over three locks of this server, and renew their leases while they work. "+
		"Every key begins with the prefix and is deleted when the clients stop."
	o.options.redlock = o.connection.Redlock
	if len(o.options.redlock) > 0 {
		s.Lock.Kind = loadgen.Redlock
	}
	if o.options.exec != "" {
		s.Clients = ownProcesses
		s = s.WithClient(o.options.exec)
	}
	g, err := quiet.openLoadServers(ctx, o.connection, &o.options, s)
	if err != nil {
		return nil, err
	}
	load, release, err := o.open(ctx, &quiet, g, s)
	if err != nil {
		g.close()
		return nil, err
	}
	o.release = func() { release(); g.close() }
	return load, nil
}

// open opens a load in this process or, if the flags ask for them, by agents. release closes the load, and what
// it needs besides g. Locks that it cannot release expire.
func (o *ownLoad) open(ctx context.Context, p *program, g *loadServers, s loadgen.Scenario) (load tui.Load, release func(), err error) {
	if err := g.checkPrefix(ctx, s, false); err != nil {
		return nil, nil, err
	}
	if o.options.control != "" {
		load, release, err := p.openAgents(ctx, o.connection, &o.options, g, s)
		return load, func() { _ = load.Close(); release() }, err
	}
	group, err := loadgen.NewGroup(g.Servers, s)
	return group, func() { _ = group.Close() }, err
}

// close stops the clients and deletes their keys.
func (o *ownLoad) close() {
	if o.release != nil {
		o.release()
	}
}
