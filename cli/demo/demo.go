// Package demo runs the servers and the traffic of the demo: a server with sample locks
// of many libraries, five servers for a Redlock, and a load on any of them.
package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"locktop/internal/server"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/loadgen"
)

// Demo is a running demo.
type Demo struct {
	Title string
	Load  *loadgen.Group

	main   node // the server with the sample locks
	quorum *Servers
	cleanup
}

// cleanup has the functions that stop what was started, in the order of the starts.
type cleanup struct{ stop []func() }

// Close stops all that was started, the newest first.
func (c *cleanup) Close() {
	for _, stop := range slices.Backward(c.stop) {
		stop()
	}
}

// Start starts the servers, the sample locks and a load with a number of clients. If
// processes is true, the servers are redis-server processes. The caller must close the result.
func Start(ctx context.Context, clients int, processes bool) (*Demo, error) {
	d := &Demo{}
	if err := d.open(ctx, clients, processes); err != nil {
		d.Close()
		return nil, fmt.Errorf("set the scene: %w", err)
	}
	return d, nil
}

func (d *Demo) open(ctx context.Context, clients int, processes bool) error {
	main, err := StartServers(ctx, 1, processes)
	if err != nil {
		return err
	}
	d.stop = append(d.stop, main.Close)
	if d.quorum, err = StartServers(ctx, RedlockNodes, processes); err != nil {
		return err
	}
	d.stop = append(d.stop, d.quorum.Close)
	d.main = main.nodes[0]
	d.Title = "demo on redis://" + d.main.addr
	traffic, err := newTraffic(ctx, d.main.rdb)
	if err != nil {
		return err
	}
	servers := loadgen.Servers{Redis: d.main.rdb, Nodes: d.quorum.Nodes, Power: d.quorum.Power}
	scenario := Scenario(clients)
	scenario.Caption += " Now and then one dies: its lease expires."
	for at := 2 * time.Second; at < 10*time.Minute; at += 15 * time.Second {
		scenario.Faults = append(scenario.Faults, loadgen.Fault{At: at, Kind: loadgen.Crash, For: 5 * time.Second})
	}
	if d.Load, err = loadgen.NewGroup(servers, scenario); err != nil {
		return err
	}
	// Locks that Close could not release end with the servers.
	d.stop = append(d.stop, func() { _ = d.Load.Close() })
	if err := d.Load.Start(); err != nil {
		return err
	}
	within, leave := context.WithCancel(ctx)
	var playing sync.WaitGroup
	playing.Go(func() { traffic.run(within) })
	d.stop = append(d.stop, playing.Wait, leave) // the newest first
	return nil
}

// Scenario returns the load of the demo, with hold times that are long enough for people
// to see holders and waiters.
func Scenario(clients int) loadgen.Scenario {
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

// Quorum returns the addresses of the Redlock's servers, in the order of their numbers
// in the load.
func (d *Demo) Quorum() []string {
	var all []string
	for _, n := range d.quorum.nodes {
		all = append(all, n.addr)
	}
	return all
}

// Clients returns a client of each server, by address.
func (d *Demo) Clients(context.Context) map[string]inspect.Client {
	all := map[string]inspect.Client{d.main.addr: d.main.rdb}
	for _, n := range d.quorum.nodes {
		all[n.addr] = n.rdb
	}
	return all
}

// Source observes a demo: always the server with the sample locks, and the servers of the
// Redlock while the load uses them. It has its own connections.
type Source struct {
	main   *inspect.BackgroundWatcher
	quorum *inspect.MultiSource
	load   *loadgen.Group
	byAddr map[string]inspect.Client
	cleanup
}

// Source starts to observe the demo with the scanners that newScanner returns. The caller
// must close the result.
func (d *Demo) Source(newScanner func(inspect.Client) *inspect.Scanner) *Source {
	s := &Source{load: d.Load, byAddr: make(map[string]inspect.Client)}
	s.main = inspect.StartWatcher(inspect.NewWatcher(newScanner(s.connect(d.main))))
	s.stop = append(s.stop, s.main.Close)
	var nodes []inspect.NamedSource
	for _, n := range d.quorum.nodes {
		w := inspect.NewWatcher(newScanner(s.connect(n)))
		s.stop = append(s.stop, w.Close)
		nodes = append(nodes, inspect.NamedSource{Addr: n.addr, Source: w})
	}
	list := func(context.Context) ([]inspect.NamedSource, error) { return nodes, nil }
	s.quorum = inspect.NewMultiSource(list, inspect.MultiOptions{Mode: "redlock", Redlock: true})
	return s
}

// connect opens a second client of a server. It does not retry if the server is down.
func (s *Source) connect(n node) server.Client {
	own := server.NewClient(n.addr, server.ClientOptions{Dial: n.dial, NoRetry: true, Timeout: time.Second})
	s.byAddr[n.addr] = own
	s.stop = append(s.stop, func() { _ = own.Close() })
	return own
}

// ClientOf returns the client of a server; nil if there is none. The demo uses one
// database of each server.
func (s *Source) ClientOf(addr string, _ int) inspect.Client { return s.byAddr[addr] }

// Snapshot returns the newest snapshot of the demo.
func (s *Source) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	snap, err := s.main.Snapshot(ctx)
	if err != nil || !s.load.Scenario().Lock.Kind.Quorum() {
		return snap, err
	}
	five, err := s.quorum.Snapshot(ctx)
	if err != nil {
		return snap, nil // a scenario may stop all five
	}
	return joined(snap, five), nil
}

// joined joins a snapshot of the main server and one of the Redlock's servers.
func joined(snap, five keyspace.Snapshot) keyspace.Snapshot {
	snap.Locks = slices.Concat(snap.Locks, five.Locks)
	slices.SortFunc(snap.Locks, keyspace.CompareLocks)
	snap.Nodes = slices.Concat(snap.Nodes, five.Nodes)
	snap.Events = slices.Concat(snap.Events, five.Events)
	snap.Problems = slices.Concat(snap.Problems, five.Problems)
	snap.Server.Mode = five.Server.Mode
	return snap
}
