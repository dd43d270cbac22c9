package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace/inspect"
)

// Target is the server, or the servers, of a command. It is safe for concurrent use.
type Target struct {
	Client  inspect.Client // client of the server, or of one of the servers
	DB      int            // database of Client
	Title   string         // address without credentials
	Many    bool           // more than one server or database
	Multi   inspect.MultiOptions
	Timeout time.Duration    // longest wait for a connection or a reply
	Cluster *inspect.Cluster // nil if the servers are not a cluster

	*Resolved
	servers *servers

	mu      sync.Mutex
	closers []func() // what Close does, the last one first
}

// newTarget returns the target with the servers of r, none of which has been asked yet.
func newTarget(r *Resolved) *Target {
	seed, title := r.seeds[0], r.Name()
	if r.flags.security.insecure {
		title += " (certificate not verified)"
	}
	t := &Target{
		Title:    title,
		Many:     r.mode != "" || r.flags.db.all,
		Multi:    inspect.MultiOptions{Mode: r.mode, Redlock: len(r.seeds) > 1},
		Timeout:  r.flags.timeout,
		Resolved: r,
		servers:  &servers{connect: r.client, locate: r.locator(), clients: make(map[endpoint]inspect.Client)},
	}
	if r.tunnel != nil {
		t.Title += " through " + r.tunnel.host
		t.OnClose(r.tunnel.leave)
	}
	t.OnClose(t.servers.close)
	if r.mode == "cluster" {
		t.Cluster = inspect.NewCluster(func(addr string) (inspect.Client, error) {
			e := seed
			e.network, e.addr = "tcp", addr
			return t.servers.client(e)
		})
	}
	return t
}

// Sources returns a function that lists the servers with their sources. It closes the
// source of a server that leaves, if the source has a method Close. Then it calls start
// for each server that appears, one after the other. Close closes all sources.
func (t *Target) Sources(start func(rdb inspect.Client, addr string, db int) inspect.Source) inspect.SourceLister {
	var mu sync.Mutex
	running := make(map[endpoint]inspect.Source)
	end := func(e endpoint) {
		if c, ok := running[e].(interface{ Close() }); ok {
			c.Close()
		}
		delete(running, e)
	}
	t.OnClose(func() {
		mu.Lock()
		defer mu.Unlock()
		for e := range running {
			end(e)
		}
	})
	return func(ctx context.Context) ([]inspect.NamedSource, error) {
		where, err := t.servers.where(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		for e := range running {
			if !slices.Contains(where, e) {
				t.servers.forget(e) // first, so that the source does not wait for a server that hangs
				end(e)
			}
		}
		var all []inspect.NamedSource
		for _, e := range where {
			rdb, err := t.servers.client(e)
			if err != nil {
				return nil, err
			}
			if running[e] == nil {
				running[e] = start(rdb, e.addr, e.db)
			}
			all = append(all, inspect.NamedSource{Addr: e.addr, Source: running[e]})
		}
		return all, nil
	}
}

// Source returns the source of the only server, from start. Close closes it.
func (t *Target) Source(start func(rdb inspect.Client, addr string, db int) inspect.Source) inspect.Source {
	source := start(t.Client, t.seeds[0].addr, t.DB)
	if c, ok := source.(interface{ Close() }); ok {
		t.OnClose(c.Close)
	}
	return source
}

// Answers returns an error unless a server answers within the timeout. A scan of a
// server that hangs takes several timeouts. For a single server Answers does nothing,
// because Open has checked it.
func (t *Target) Answers(ctx context.Context, rdb inspect.Client) error {
	if !t.Many {
		return nil
	}
	err := t.ask(ctx, rdb)
	if isBusy(err) {
		return nil // the scan tries again
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("no answer within %s", humanize.Setting(t.Timeout))
	}
	return err
}

// User returns the ACL user of the connections.
func (t *Target) User() string { return cmp.Or(t.user(t.seeds[0]), "default") }

// Clients returns a client of each server, by address.
func (t *Target) Clients(ctx context.Context) map[string]inspect.Client {
	all := make(map[string]inspect.Client)
	where, err := t.servers.where(ctx)
	if err != nil { // use the servers known so far
		where = t.servers.endpoints()
	}
	for _, e := range where {
		if rdb, err := t.servers.client(e); err == nil {
			all[e.addr] = rdb
		}
	}
	return all
}

// ClientOf returns the open client of a database on a server; nil if there is none.
func (t *Target) ClientOf(addr string, db int) inspect.Client {
	for _, e := range t.servers.endpoints() {
		if e.addr == addr && e.db == db {
			rdb, _ := t.servers.client(e) // nil after an error
			return rdb
		}
	}
	return nil
}

// Master returns the address of the master of a single server that is a replica; "" if it is none.
func (t *Target) Master(ctx context.Context) string {
	info := t.Client.Info(ctx, "replication").Val()
	host, replica := inspect.InfoValue(info, "master_host")
	if port, _ := inspect.InfoValue(info, "master_port"); replica && !t.Many {
		return net.JoinHostPort(host, port)
	}
	return ""
}

// checkVotes is [Distinct] for the servers of a Redlock.
func (t *Target) checkVotes(ctx context.Context) error {
	if !t.Multi.Redlock {
		return nil
	}
	addrs, clients := make([]string, len(t.seeds)), make([]inspect.Client, len(t.seeds))
	for i, e := range t.seeds {
		addrs[i] = e.addr
		clients[i], _ = t.servers.client(e) // ping has opened it
	}
	return Distinct(ctx, addrs, clients)
}

// distinctWithin limits the wait of Distinct for servers that do not answer.
const distinctWithin = time.Second

// Distinct returns an error if two addresses lead to one server, which has one vote in a Redlock.
// It compares only servers that answer and tell their run ID.
func Distinct[C interface {
	Info(ctx context.Context, section ...string) *redis.StringCmd
}](ctx context.Context, addrs []string, clients []C) error {
	ctx, cancel := context.WithTimeout(ctx, distinctWithin)
	defer cancel()
	ids := make([]string, len(addrs))
	var all sync.WaitGroup
	for i, rdb := range clients {
		all.Go(func() { ids[i], _ = inspect.InfoValue(rdb.Info(ctx, "server").Val(), "run_id") })
	}
	all.Wait()
	for i := range addrs {
		for j := range i {
			if addrs[i] == addrs[j] || ids[i] != "" && ids[i] == ids[j] {
				return usagef("", "%s and %s are one server, which has one vote in a Redlock", addrs[j], addrs[i])
			}
		}
	}
	return nil
}

// OnClose makes Close call f.
func (t *Target) OnClose(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closers = append(t.closers, f)
}

// Close closes all sources and clients.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range slices.Backward(t.closers) {
		f()
	}
	t.closers = nil
}
