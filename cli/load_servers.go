package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

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
func (p *program) openLoadServers(ctx context.Context, c *connFlags, o *loadOptions, s loadgen.Scenario) (*loadServers, error) {
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
	g := &loadServers{Servers: loadgen.Servers{Redis: t.rdb}, title: t.title, close: t.close}
	if c.cluster {
		cluster, err := c.clusterClient(t.servers.endpoints())
		if err != nil {
			t.close()
			return nil, err
		}
		g.Redis, g.close = cluster, func() { _ = cluster.Close(); t.close() }
		g.Failover = clusterFailover(cluster)
	}
	if len(c.sentinels) > 0 {
		master, err := c.followMaster(t.servers.endpoints()[0])
		if err != nil {
			t.close()
			return nil, err
		}
		g.Redis, g.close = master, func() { _ = master.Close(); t.close() }
		g.Failover = c.failover
	}
	return g, nil
}

// clusterClient returns a client for the cluster of servers.
func (c *connFlags) clusterClient(servers []endpoint) (*redis.ClusterClient, error) {
	o, err := c.options(servers[0])
	if err != nil {
		return nil, err
	}
	all := &redis.ClusterOptions{
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	for _, e := range servers {
		all.Addrs = append(all.Addrs, e.addr)
	}
	return redis.NewClusterClient(all), nil
}

const loadHint = "--yes-load-this-server does it all the same"

// dialLocal connects to a server or a cluster. Unless force is true, the address
// must be on this machine.
func (p *program) dialLocal(ctx context.Context, c *connFlags, force bool) (*target, error) {
	e, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if !force && !e.local() {
		return nil, usageErrorf(loadHint, "%s is not on this machine: a load there may slow down what others do", e)
	}
	t, err := p.connect(ctx, c)
	if err != nil || force || !c.cluster && len(c.sentinels) == 0 {
		return t, err
	}
	where, err := t.servers.where(ctx)
	of := "the cluster"
	if err == nil && len(c.sentinels) > 0 {
		of = "the set that the Sentinels watch"
		where, err = c.announced(ctx, e)
	}
	if err != nil {
		t.close()
		return nil, noConnection(e, err, c.timeout)
	}
	for _, node := range where {
		if !node.local() {
			t.close()
			return nil, usageErrorf(loadHint, "%s, a node of %s, is not on this machine: a load there may slow down what others do", node, of)
		}
	}
	return t, nil
}

// dialNodes connects to the servers of a Redlock.
func (p *program) dialNodes(ctx context.Context, c *connFlags, o *loadOptions) (*loadServers, error) {
	g := &loadServers{title: humanize.Plural(len(o.redlock), "node"), close: func() {}}
	for _, url := range o.redlock {
		one := *c
		one.url = url
		one.given = func(flag string) bool { return flag == "url" || c.given(flag) }
		t, err := p.dialLocal(ctx, &one, o.force)
		if err != nil {
			g.close()
			return nil, err
		}
		rest := g.close
		g.close = func() { t.close(); rest() }
		g.Nodes = append(g.Nodes, t.rdb)
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

// This file has the parts of a load for Sentinels and clusters: following the master,
// and failovers as faults.

// followMaster returns a client of the master, wherever the Sentinels locate it.
func (c *connFlags) followMaster(e endpoint) (*redis.Client, error) {
	o, err := c.options(e)
	if err != nil {
		return nil, err
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: c.master, SentinelAddrs: c.sentinelAddresses(), DB: o.DB,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		DisableIdentity: true,
	}), nil
}

// withSentinel calls f for each Sentinel in turn until f returns nil.
func (c *connFlags) withSentinel(f func(*redis.SentinelClient) error) error {
	var errs []error
	for _, addr := range c.sentinelAddresses() {
		o, err := c.options(endpoint{network: "tcp", addr: addr, tls: c.security.tls})
		if err != nil {
			return err
		}
		o.OnConnect = nil // a Sentinel does not know these commands
		sentinel := redis.NewSentinelClient(o)
		err = f(sentinel)
		_ = sentinel.Close()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("ask the Sentinel at %s: %w", addr, err))
	}
	return errors.Join(errs...)
}

// announced returns the addresses of the master and its replicas from the Sentinels.
// A failover may make any of them the master of the load.
func (c *connFlags) announced(ctx context.Context, like endpoint) (all []endpoint, err error) {
	like.network = "tcp"
	err = c.withSentinel(func(sentinel *redis.SentinelClient) error {
		master, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
		if err != nil {
			return err
		}
		replicas, err := sentinel.Replicas(ctx, c.master).Result()
		if err != nil {
			return err
		}
		like.addr = net.JoinHostPort(master[0], master[1])
		all = []endpoint{like}
		for _, r := range replicas {
			like.addr = net.JoinHostPort(r["ip"], r["port"])
			all = append(all, like)
		}
		return nil
	})
	return all, err
}

// failoverPoll is the time between two questions for the address of the master.
const failoverPoll = 20 * time.Millisecond

// failover makes the Sentinels promote a replica.
func (c *connFlags) failover(ctx context.Context) error {
	return c.withSentinel(func(sentinel *redis.SentinelClient) error {
		before, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
		if err == nil {
			err = sentinel.Failover(ctx, c.master).Err()
		}
		if err != nil {
			return err
		}
		for {
			now, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
			if err == nil && (now[0] != before[0] || now[1] != before[1]) {
				return nil
			}
			select {
			case <-time.After(failoverPoll):
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			}
		}
	})
}

// clusterFailover returns a function that promotes a replica of the cluster.
func clusterFailover(cluster *redis.ClusterClient) func(context.Context) error {
	return func(ctx context.Context) error {
		//lint:ignore SA1019 servers before 7.0 do not know CLUSTER SHARDS
		slots, err := cluster.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, part := range slots {
			if len(part.Nodes) < 2 {
				continue
			}
			replica := part.Nodes[1].Addr
			found := errors.New("the cluster has no replica")
			err := cluster.ForEachSlave(ctx, func(ctx context.Context, node *redis.Client) error {
				if node.Options().Addr != replica {
					return nil
				}
				found = node.ClusterFailover(ctx).Err()
				return nil
			})
			return errors.Join(err, found)
		}
		return errors.New("the cluster has no replicas")
	}
}
