package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// inspection is everything about one key on all servers.
type inspection struct {
	render.View
	raw []rawKey
	typ string // reply to TYPE; "none": the key does not exist
}

// rawKey is a key on one server.
type rawKey struct {
	node  string
	entry keyspace.Entry
}

// inspectKey reads one key from all servers, without a scan.
func (t *target) inspectKey(ctx context.Context, s *selection, key string) (inspection, error) {
	var mu sync.Mutex
	g := inspection{typ: "none"}
	fleet := inspect.NewMultiSource(t.roster(func(rdb *redis.Client, e endpoint) inspect.Source {
		o := s.options(e.db, nil)
		o.Match, o.MinConfidence = nil, keyspace.Possible
		o.Cluster = t.cluster
		return singleKeySource{inspect.NewScanner(rdb, o), t.presence(rdb), key, func(sight inspect.Key) {
			mu.Lock()
			defer mu.Unlock()
			for _, entry := range sight.Entries {
				g.add(rawKey{cmp.Or(entry.Node, e.addr), entry}, t.cluster != nil)
			}
			if sight.Type != "none" {
				g.typ = sight.Type
			}
		}}
	}), t.fleet)
	snap, err := fleet.Snapshot(ctx)
	g.View = render.NewView(snap, s.databases)
	return g, err
}

// whichDatabases lists the databases with the lock.
func (g inspection) whichDatabases() string {
	var all []string
	for _, l := range g.Locks {
		all = append(all, strconv.Itoa(l.DB))
	}
	return strings.Join(all, ", ")
}

// add adds a key on one server. In a cluster the sources of all nodes read the same
// key, so add ignores repetitions.
func (g *inspection) add(r rawKey, cluster bool) {
	if !cluster || !slices.ContainsFunc(g.raw, func(known rawKey) bool { return known.node == r.node && known.entry.Key == r.entry.Key }) {
		g.raw = append(g.raw, r)
	}
}

// singleKeySource is a source that reads only one key.
type singleKeySource struct {
	*inspect.Scanner
	present func(context.Context) error
	key     string
	see     func(inspect.Key)
}

// Snapshot reads the key.
func (o singleKeySource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	if err := o.present(ctx); err != nil {
		return keyspace.Snapshot{}, err
	}
	sight, err := o.ReadKey(ctx, o.key)
	if err == nil {
		o.see(sight)
	}
	return sight.Snapshot, err
}

// oneKey checks that the only argument is the key.
func oneKey(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usageErrorf("see "+cmd.CommandPath()+" --help", "%s needs the key of a lock", cmd.CommandPath())
	case len(args) > 1:
		return usageErrorf("quote it if it has spaces", "%s takes one key", cmd.CommandPath())
	}
	return nil
}

// lock returns the lock of the inspection, or an exitError if the key is not a lock.
func (g inspection) lock(key string) (keyspace.Lock, error) {
	switch {
	case len(g.Locks) > 0:
		return g.Locks[0], nil
	case !g.Complete:
		return keyspace.Lock{}, incomplete(g.Snapshot)
	case g.typ == "none":
		return keyspace.Lock{}, noLock("nobody holds it, or it has another name: locktop list --match", "there is no key %q", key)
	default:
		return keyspace.Lock{}, noLock("--lock GLOB says that a key is a lock, whatever it holds", "%q is a %s that matches no known lock format", key, g.typ)
	}
}
