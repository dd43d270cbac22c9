package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/loadgen"
)

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
	a := &demoSource{main: inspect.StartWatcher(inspect.NewWatcher(s.scanner(eye, 0))), load: st.load, ledger: newCommandStats(eye)}
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
