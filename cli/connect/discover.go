package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace/inspect"
)

// locator finds servers. v are the connections so far.
type locator func(ctx context.Context, v *servers) ([]endpoint, error)

// locator returns what finds the servers of r.
func (r *Resolved) locator() locator {
	locate := func(context.Context, *servers) ([]endpoint, error) { return r.seeds, nil }
	switch r.mode {
	case "cluster":
		locate = r.inCluster
	case "sentinel":
		locate = r.bySentinel
	}
	if r.flags.db.all {
		return inAllDatabases(locate)
	}
	return locate
}

// inCluster finds the masters of the seed's cluster, or a replica of each if replicas are
// preferred.
func (r *Resolved) inCluster(ctx context.Context, v *servers) ([]endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, r.flags.timeout)
	defer cancel()
	seed := r.seeds[0]
	others := slices.DeleteFunc(v.endpoints(), func(e endpoint) bool { return e == seed })
	return firstAnswer(append([]endpoint{seed}, others...), func(e endpoint) ([]endpoint, error) {
		rdb, err := v.client(e)
		if err != nil {
			return nil, err
		}
		// Servers before 7.0 do not know CLUSTER SHARDS.
		slots, err := rdb.ClusterSlots(ctx).Result()
		switch {
		case err == nil:
			return withImporters(nodesOf(slots, e, r.flags.PreferReplica), rdb.ClusterNodes(ctx).Val(), e), nil
		case e == seed && strings.Contains(err.Error(), "cluster support disabled"):
			return nil, usagef("leave out --cluster", "the server at %s is no part of a cluster", e)
		}
		return nil, err
	})
}

// withImporters adds the masters without slots, because a slot migration may move
// keys to them. CLUSTER SLOTS does not list these masters.
func withImporters(all []endpoint, nodes string, like endpoint) []endpoint {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) != 8 || !slices.Contains(strings.Split(fields[2], ","), "master") || strings.Contains(fields[2], "fail") {
			continue
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		if e := like; !strings.HasPrefix(addr, ":") {
			e.network, e.addr = "tcp", addr
			all = append(all, e)
		}
	}
	return all
}

// nodesOf returns one node for each range of slots. A node without an address is
// the server that was asked.
func nodesOf(slots []redis.ClusterSlot, asked endpoint, replicas bool) []endpoint {
	var all []endpoint
	for _, part := range slots {
		if len(part.Nodes) == 0 {
			continue
		}
		e := asked
		node := part.Nodes[0]
		if e.readonly = replicas && len(part.Nodes) > 1; e.readonly {
			node = part.Nodes[1]
		}
		if !strings.HasPrefix(node.Addr, ":") {
			e.network, e.addr = "tcp", node.Addr
		}
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// bySentinel finds the master by its name in the Sentinels, or one of its replicas if replicas
// are preferred.
func (r *Resolved) bySentinel(ctx context.Context, _ *servers) ([]endpoint, error) {
	e := r.seeds[0]
	var err error
	e.network = "tcp"
	e.addr, err = r.askSentinels(ctx, r.flags.PreferReplica)
	return []endpoint{e}, err
}

// askSentinels asks all Sentinels for the address of the master, or of a replica if there
// is one.
func (r *Resolved) askSentinels(ctx context.Context, replica bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.flags.timeout)
	defer cancel()
	return firstAnswer(r.sentinels, func(e endpoint) (string, error) { return r.askSentinel(ctx, e, replica) })
}

// sentinelError is the reason why a Sentinel does not give the master's address.
type sentinelError struct {
	addr string
	err  error
}

func (e *sentinelError) Error() string {
	err := e.err
	if said, ok := errors.AsType[redis.Error](err); ok {
		err = said // without the text that go-redis adds
	}
	return fmt.Sprintf("ask the Sentinel at %s: %s", e.addr, strings.TrimSpace(err.Error()))
}

func (e *sentinelError) Unwrap() error { return e.err }

// askSentinel asks one Sentinel for the address of the master, or of a replica that is up if there is one.
func (r *Resolved) askSentinel(ctx context.Context, e endpoint, replica bool) (string, error) {
	sentinel, err := r.sentinel(e)
	if err != nil {
		return "", err
	}
	defer sentinel.Close()
	master, err := sentinel.GetMasterAddrByName(ctx, r.flags.master).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", usagef("", "the Sentinel at %s knows no master %q", e.addr, r.flags.master)
	case err != nil:
		return "", &sentinelError{e.addr, err}
	}
	if replica {
		all, _ := sentinel.Replicas(ctx, r.flags.master).Result() // without them, the master is read
		for _, one := range all {
			if one["flags"] == "slave" && one["master-link-status"] == "ok" {
				return net.JoinHostPort(one["ip"], one["port"]), nil
			}
		}
	}
	return net.JoinHostPort(master[0], master[1]), nil
}

// sentinel returns a client of a Sentinel.
func (r *Resolved) sentinel(e endpoint) (*redis.SentinelClient, error) {
	o, err := r.options(e)
	if err != nil {
		return nil, err
	}
	o.OnConnect = nil                    // a Sentinel does not know these commands
	o.StreamingCredentialsProvider = nil // the password is that of the servers
	return redis.NewSentinelClient(o), nil
}

// inAllDatabases returns a function that finds the databases in use on the servers
// of locate. A database that was in use remains in the list, also on the server that
// takes the place of its server: its locks are missing there.
func inAllDatabases(locate locator) locator {
	return func(ctx context.Context, v *servers) ([]endpoint, error) {
		found, err := locate(ctx, v)
		if err != nil {
			return nil, err
		}
		known := v.databases()
		each, failed := make([][]endpoint, len(found)), make([]error, len(found))
		var asking sync.WaitGroup
		for i, e := range found {
			rdb, err := v.client(e)
			if err != nil {
				return nil, err
			}
			asking.Go(func() {
				info, err := rdb.Info(ctx, "keyspace").Result()
				if err != nil && !isRejected(err) {
					failed[i] = err
				}
				each[i] = []endpoint{e} // also if this database is empty, or the server does not answer
				for _, n := range append(databasesIn(info), known...) {
					if e.db = n; !slices.Contains(each[i], e) {
						each[i] = append(each[i], e)
					}
				}
			})
		}
		asking.Wait()
		if !slices.Contains(failed, nil) {
			return nil, failed[0]
		}
		return slices.Concat(each...), nil
	}
}

// databasesIn parses the databases from the keyspace section of INFO.
func databasesIn(info string) []int {
	var all []int
	for line := range strings.Lines(info) {
		name, _, ok := strings.Cut(line, ":")
		number, isDB := strings.CutPrefix(name, "db")
		if n, err := strconv.Atoi(number); ok && isDB && err == nil {
			all = append(all, n)
		}
	}
	return all
}

// locateEvery is how long the result of locate stays valid.
const locateEvery = 2 * time.Second

// servers are the connections to all servers. Their list may change with a cluster or
// a Sentinel. It is safe for concurrent use.
type servers struct {
	connect func(endpoint) (inspect.Client, error)
	locate  locator

	mu      sync.Mutex
	clients map[endpoint]inspect.Client
	known   []endpoint // last result of locate
	asked   time.Time
}

// where returns the current servers. If locate fails, it returns the last known ones.
func (v *servers) where(ctx context.Context) ([]endpoint, error) {
	v.mu.Lock()
	known, asked := v.known, v.asked
	v.mu.Unlock()
	if len(known) > 0 && time.Since(asked) < locateEvery {
		return known, nil
	}
	found, err := v.locate(ctx, v)
	if err != nil && len(known) == 0 {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Now()
	if err == nil && len(found) > 0 {
		v.known = found
	}
	return v.known, nil
}

// databases returns the numbers of the databases that were found last.
func (v *servers) databases() (all []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.known {
		if !slices.Contains(all, e.db) {
			all = append(all, e.db)
		}
	}
	return all
}

// client returns the client of a server. The first call opens it.
func (v *servers) client(e endpoint) (inspect.Client, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rdb, ok := v.clients[e]; ok {
		return rdb, nil
	}
	rdb, err := v.connect(e)
	if err != nil {
		return nil, err
	}
	v.clients[e] = rdb
	return rdb, nil
}

// forget closes the client of a server.
func (v *servers) forget(e endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rdb, ok := v.clients[e]; ok {
		_ = rdb.Close()
		delete(v.clients, e)
	}
}

// close closes all clients.
func (v *servers) close() {
	for _, e := range v.endpoints() {
		v.forget(e)
	}
}

// endpoints returns the endpoints with an open client.
func (v *servers) endpoints() []endpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.SortedFunc(maps.Keys(v.clients), func(a, b endpoint) int { return cmp.Or(strings.Compare(a.addr, b.addr), cmp.Compare(a.db, b.db)) })
}
