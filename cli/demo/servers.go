package demo

import (
	"context"
	"errors"

	"locktop/internal/humanize"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/loadgen"
)

// RedlockNodes is the number of servers of a Redlock.
const RedlockNodes = 5

// Servers are servers that this process has started.
type Servers struct {
	loadgen.Servers
	Title string

	nodes []node
	cleanup
}

// node is a server, and a client of it.
type node struct {
	addr string
	dial netfault.Dialer // nil = TCP
	rdb  server.Client
}

// StartServers starts n servers: redis-server processes if processes is true, and otherwise
// embedded servers. Nodes has a client of each.
func StartServers(ctx context.Context, n int, processes bool) (*Servers, error) {
	g := &Servers{}
	start := g.startEmbedded
	if processes {
		start = g.startChildren
	}
	if err := start(ctx, n); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Servers) startChildren(ctx context.Context, n int) error {
	set, err := server.StartIndependent(ctx, n, server.ChildOptions{})
	if err != nil {
		return err
	}
	g.Title, g.Power = humanize.Plural(n, "redis-server")+" of its own", set
	g.stop = append(g.stop, func() { _ = set.Stop() })
	for _, child := range set.Nodes() {
		g.add(child.Addr(), nil)
	}
	return nil
}

// add adds a server.
func (g *Servers) add(addr string, dial netfault.Dialer) {
	rdb := server.NewClient(addr, server.ClientOptions{Dial: dial})
	g.nodes, g.Nodes = append(g.nodes, node{addr, dial, rdb}), append(g.Nodes, rdb)
	g.stop = append(g.stop, func() { _ = rdb.Close() })
}

func (g *Servers) startEmbedded(_ context.Context, n int) error {
	g.Title = humanize.Plural(n, "server") + " inside locktop, not for figures: these need redis-server"
	var power embeddedServers
	for range n {
		e, err := server.StartEmbedded()
		if err != nil {
			return err
		}
		link := netfault.New(e.Dial)
		g.stop = append(g.stop, e.Close)
		g.add(e.Addr(), link.Dial)
		power = append(power, switchableServer{e, link})
	}
	g.Power = power
	return nil
}

// embeddedServers are embedded servers behind networks with switches. To its clients,
// a server behind a cut network is down.
type embeddedServers []switchableServer

type switchableServer struct {
	*server.Embedded
	link *netfault.Network
}

// Down implements [loadgen.NodeController].
func (s embeddedServers) Down(node int) error {
	s[node-1].link.Refuse(errors.New("the node is down"))
	s[node-1].link.Cut()
	return nil
}

// Up implements [loadgen.NodeController].
func (s embeddedServers) Up(_ context.Context, node int, empty bool) error {
	if empty {
		s[node-1].Redis.FlushAll()
	}
	s[node-1].link.Refuse(nil)
	return nil
}

// Freeze implements [loadgen.NodeController]: the server does not answer and connections
// stay open, like those of a stopped process.
func (s embeddedServers) Freeze(node int) error {
	s[node-1].link.Freeze()
	return nil
}

// Continue implements [loadgen.NodeController].
func (s embeddedServers) Continue(node int) error {
	s[node-1].link.Thaw()
	return nil
}
