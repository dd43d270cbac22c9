package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
	"locktop/loadgen"
)

// demoEnv is the environment of the demo: a server with changing sample locks, five
// servers for a Redlock, and a load on any of them.
type demoEnv struct {
	rdb    *redis.Client // of the server with the sample locks
	title  string
	quorum *loadServers
	load   *loadgen.Group
	close  func()
}

// demoOptions configures a demoEnv.
type demoOptions struct {
	clients int
	real    bool // redis-server processes instead of embedded servers
}

// newDemoEnv starts the servers, the sample locks and the load. The caller must
// close the result.
func newDemoEnv(ctx context.Context, o demoOptions) (*demoEnv, error) {
	st := &demoEnv{}
	st.close = func() {}
	if err := st.open(ctx, o); err != nil {
		st.close()
		return nil, fmt.Errorf("set the scene: %w", err)
	}
	return st, nil
}

func (st *demoEnv) open(ctx context.Context, o demoOptions) error {
	main, err := startDemoServers(ctx, 1, o.real)
	if err != nil {
		return err
	}
	st.onClose(main.close)
	if st.quorum, err = startDemoServers(ctx, nodes, o.real); err != nil {
		return err
	}
	st.onClose(st.quorum.close)
	st.rdb = main.Nodes[0]
	st.title = "demo on redis://" + st.rdb.Options().Addr
	return st.start(ctx, o.clients)
}

// startDemoServers starts n servers: embedded ones, or redis-server processes if
// real is true.
func startDemoServers(ctx context.Context, n int, real bool) (*loadServers, error) {
	g := &loadServers{ours: true, close: func() {}}
	start := func() error { return g.startEmbedded(n) }
	if real {
		start = func() error { return g.startChildren(ctx, n) }
	}
	if err := start(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// onClose makes close call do before everything else.
func (st *demoEnv) onClose(do func()) {
	rest := st.close
	st.close = func() {
		do()
		rest()
	}
}

// start starts the sample locks and the clients of the load.
func (st *demoEnv) start(ctx context.Context, clients int) error {
	c, err := newDemoTraffic(ctx, st.rdb)
	if err != nil {
		return err
	}
	servers := loadgen.Servers{Redis: st.rdb, Nodes: st.quorum.Nodes, Power: st.quorum.Power}
	if st.load, err = loadgen.NewGroup(servers, demoLoad(clients)); err != nil {
		return err
	}
	// Locks that Close could not release end with the servers.
	st.onClose(func() { _ = st.load.Close() })
	if err := st.load.Start(); err != nil {
		return err
	}
	playing, leave := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.play(playing)
	}()
	st.onClose(func() {
		leave()
		<-done
	})
	return nil
}

// addrs returns the addresses of the Redlock's servers, in the order of their
// numbers in the load.
func (st *demoEnv) addrs() []string {
	var all []string
	for _, n := range st.quorum.Nodes {
		all = append(all, n.Options().Addr)
	}
	return all
}

// breaker returns an executor for all servers of the demo.
func (st *demoEnv) breaker(log release.AuditLog) *release.Executor {
	servers := map[string]redis.UniversalClient{st.rdb.Options().Addr: st.rdb}
	for _, n := range st.quorum.Nodes {
		servers[n.Options().Addr] = n
	}
	return release.NewExecutor(servers, formats.All(), log)
}

// observerClient returns a second client of rdb's server. It does not retry if the
// server is down.
func observerClient(rdb *redis.Client) *redis.Client {
	o := *rdb.Options()
	o.MaxRetries, o.PoolSize = -1, 2
	o.DialTimeout, o.ReadTimeout, o.ContextTimeoutEnabled = time.Second, time.Second, true
	return redis.NewClient(&o)
}

// demoLoad returns a scenario with hold times that are long enough for people to
// see holders and waiters.
func demoLoad(clients int) loadgen.Scenario {
	return loadgen.Scenario{
		Name: "demo",
		Caption: "Clients fight over three locks, and keep their leases alive while they work. " +
			"Add some with + and watch the waiting grow.",
		Clients: clients,
		Lock:    loadgen.Lock{TTL: 3 * time.Second},
		Hold:    loadgen.Exp(300 * time.Millisecond),
		Think:   loadgen.Exp(500 * time.Millisecond),
	}
}

// demoSource observes the demo: always the server with the sample locks, and the
// servers of the Redlock while the load uses them.
type demoSource struct {
	main    *inspect.BackgroundWatcher
	quorum  *inspect.MultiSource
	load    *loadgen.Group
	ledger  *commandStats
	clients []*redis.Client // connections of this source only
	close   func()
}

// source starts to observe the demo. The caller must close the result.
func (st *demoEnv) source(s *selection) *demoSource {
	eye := observerClient(st.rdb)
	a := &demoSource{main: inspect.StartWatcher(inspect.NewWatcher(s.scanner(eye, 0))), load: st.load}
	a.ledger = newCommandStats(func(hook func(*redis.Client)) { hook(eye) })
	followers := []*inspect.Watcher{}
	a.clients = []*redis.Client{eye}
	var stations []inspect.NamedSource
	for _, n := range st.quorum.Nodes {
		eye := observerClient(n)
		f := inspect.NewWatcher(s.scanner(eye, 0))
		followers, a.clients = append(followers, f), append(a.clients, eye)
		stations = append(stations, inspect.NamedSource{Addr: n.Options().Addr, Source: f})
	}
	roster := func(context.Context) ([]inspect.NamedSource, error) { return stations, nil }
	a.quorum = inspect.NewMultiSource(roster, inspect.MultiOptions{Mode: "redlock", Redlock: true})
	a.close = func() {
		a.main.Close()
		for _, f := range followers {
			f.Close()
		}
		for _, c := range a.clients {
			_ = c.Close()
		}
	}
	return a
}

// clientOf returns this source's client of a server; nil if there is none. Its
// connections are not subject to the faults of the load.
func (a *demoSource) clientOf(addr string, _ int) *redis.Client {
	for _, rdb := range a.clients {
		if rdb.Options().Addr == addr {
			return rdb
		}
	}
	return nil
}

// Snapshot returns the newest snapshot of the demo.
func (a *demoSource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	snap, err := a.main.Snapshot(ctx)
	if err != nil || a.load.Scenario().Lock.Kind != loadgen.Redlock {
		return snap, err
	}
	five, err := a.quorum.Snapshot(ctx)
	if err != nil {
		return snap, nil // a scenario may stop all five
	}
	return both(snap, five), nil
}

// both joins a snapshot of the main server and one of the Redlock's servers.
func both(snap, five keyspace.Snapshot) keyspace.Snapshot {
	snap.Locks = slices.Concat(snap.Locks, five.Locks)
	slices.SortFunc(snap.Locks, func(a, b keyspace.Lock) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key))
	})
	snap.Nodes = slices.Concat(snap.Nodes, five.Nodes)
	snap.Events = slices.Concat(snap.Events, five.Events)
	snap.Problems = slices.Concat(snap.Problems, five.Problems)
	snap.Server.Mode = five.Server.Mode
	return snap
}
