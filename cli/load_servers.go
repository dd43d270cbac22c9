package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"locktop/cli/connect"
	"locktop/humanize"
	"locktop/internal/netfault"
	"locktop/loadgen"
	"locktop/server"
	"locktop/tui/widget"
)

// loadServers has the servers of a load.
type loadServers struct {
	loadgen.Servers
	ours  bool // started by this process
	title string
	close func()
}

// nodes is the number of servers of a Redlock in the demo.
const nodes = 5

// openLoadServers connects to the servers of the flags, or starts servers.
func (p *program) openLoadServers(ctx context.Context, c *connect.Flags, o *loadOptions, s loadgen.Scenario) (*loadServers, error) {
	redlock := s.Lock.Kind == loadgen.Redlock
	switch {
	case o.demo && len(o.redlock) > 0:
		return nil, usageErrorf("", "--demo and --redlock contradict each other")
	case o.demo && redlock:
		return startLoadServers(ctx, nodes)
	case o.demo:
		return startLoadServers(ctx, 1)
	case len(o.redlock) > 0:
		return p.dialNodes(ctx, c, o)
	case redlock:
		return nil, usageErrorf("name them with --redlock URL,URL,…, or start some with --demo", "a redlock needs independent servers")
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

const loadHint = "--yes-load-this-server does it all the same"

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
	return usageErrorf(hint, "%s is not on this machine: a load there may slow down what others do", remote)
}

// dialNodes connects to the servers of a Redlock.
func (p *program) dialNodes(ctx context.Context, c *connect.Flags, o *loadOptions) (*loadServers, error) {
	g := &loadServers{title: humanize.Plural(len(o.redlock), "node"), close: func() {}}
	for _, url := range o.redlock {
		t, err := p.dialLocal(ctx, c.WithURL(url), o.force)
		if err != nil {
			g.close()
			return nil, err
		}
		rest := g.close
		g.close = func() { t.Close(); rest() }
		g.Nodes = append(g.Nodes, t.Client)
	}
	g.Redis = g.Nodes[0]
	return g, nil
}

// startLoadServers starts n servers: processes if redis-server is on PATH, otherwise
// embedded servers.
func startLoadServers(ctx context.Context, n int) (*loadServers, error) {
	g := &loadServers{ours: true, close: func() {}}
	err := g.startChildren(ctx, n)
	if errors.Is(err, server.ErrNotInstalled) {
		err = g.startEmbedded(n)
	}
	if err != nil {
		g.close()
		return nil, fmt.Errorf("start servers for the demo: %w", err)
	}
	g.Redis = g.Nodes[0]
	if n == 1 {
		g.Nodes = nil
	}
	return g, nil
}

// add adds a server; end stops it.
func (g *loadServers) add(rdb *redis.Client, end func()) {
	g.Nodes = append(g.Nodes, rdb)
	rest := g.close
	g.close = func() {
		_ = rdb.Close()
		end()
		rest()
	}
}

func (g *loadServers) startChildren(ctx context.Context, n int) error {
	set, err := server.StartIndependent(ctx, n)
	if err != nil {
		return err
	}
	g.title, g.Power = humanize.Plural(n, "redis-server")+" of its own", set
	g.close = func() { _ = set.Stop() }
	for _, child := range set.Nodes() {
		g.add(redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true}), func() {})
	}
	return nil
}

func (g *loadServers) startEmbedded(n int) error {
	g.title = humanize.Plural(n, "server") + " inside locktop, not for figures: these need redis-server"
	var power embeddedServers
	for range n {
		e, err := server.StartEmbedded()
		if err != nil {
			return err
		}
		link := netfault.New(e.Dial)
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr(), Dialer: link.Dial, DisableIdentity: true})
		inside := redis.NewClient(&redis.Options{Addr: e.Addr(), Dialer: e.Dial, DisableIdentity: true})
		power = append(power, switchableServer{link, inside})
		g.add(rdb, func() { _ = inside.Close(); e.Close() })
	}
	g.Power = power
	return nil
}

// embeddedServers are embedded servers behind networks with switches. To its clients,
// a server behind a cut network is down.
type embeddedServers []switchableServer

type switchableServer struct {
	link   *netfault.Network
	inside *redis.Client // direct connection, without the network
}

// Down implements [loadgen.NodeController].
func (l embeddedServers) Down(node int) error {
	l[node-1].link.Refuse(errors.New("the node is down"))
	l[node-1].link.Cut()
	return nil
}

// Up implements [loadgen.NodeController].
func (l embeddedServers) Up(ctx context.Context, node int, empty bool) error {
	if empty {
		if err := l[node-1].inside.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	l[node-1].link.Refuse(nil)
	return nil
}

// Freeze implements [loadgen.Stopper]: the server does not answer and connections
// stay open, like those of a stopped process.
func (l embeddedServers) Freeze(node int) error {
	l[node-1].link.Freeze()
	return nil
}

// Continue implements [loadgen.Stopper].
func (l embeddedServers) Continue(node int) error {
	l[node-1].link.Thaw()
	return nil
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
		return usageErrorf(loadHint, "there are keys under the prefix %q that are not ours: %s", s.Keys.Prefix, widget.Plain(key))
	}
	return nil
}
