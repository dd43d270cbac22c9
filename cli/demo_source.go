package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/loadgen"
)

// demoSource looks at the stage: at the server of the cast always, at those of the
// Redlock while the load plays on them.
type demoSource struct {
	main    *keyspace.BackgroundWatcher
	quorum  *keyspace.MultiSource
	load    *loadgen.Group
	ledger  *commandStats
	clients []*redis.Client // to look through
	close   func()
}

// source takes seats for an audience, which must be closed.
func (st *demoEnv) source(s *selection) *demoSource {
	eye := observerClient(st.rdb)
	a := &demoSource{main: keyspace.StartWatcher(keyspace.NewWatcher(s.scanner(eye, 0))), load: st.load, ledger: newCommandStats(eye)}
	followers := []*keyspace.Watcher{}
	a.clients = []*redis.Client{eye}
	var stations []keyspace.NamedSource
	for _, n := range st.quorum.Nodes {
		eye := observerClient(n)
		f := keyspace.NewWatcher(s.scanner(eye, 0))
		followers, a.clients = append(followers, f), append(a.clients, eye)
		stations = append(stations, keyspace.NamedSource{Addr: n.Options().Addr, Source: f})
	}
	roster := func(context.Context) ([]keyspace.NamedSource, error) { return stations, nil }
	a.quorum = keyspace.NewMultiSource(roster, keyspace.MultiOptions{Mode: "redlock", Redlock: true})
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

// Snapshot returns the newest picture of the stage.
func (a *demoSource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	snap, err := a.main.Snapshot(ctx)
	if err != nil || a.load.Scenario().Lock.Kind != loadgen.Redlock {
		return snap, err
	}
	five, err := a.quorum.Snapshot(ctx)
	if err != nil {
		return snap, nil // all five may be down, and the show goes on
	}
	return both(snap, five), nil
}

// both is one picture of the server of the cast and of those of the Redlock.
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
