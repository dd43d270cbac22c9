package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

	flags   Flags
	seed    endpoint
	servers *servers

	mu      sync.Mutex
	closers []func() // what Close does before it closes the clients
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
	t.onClose(func() {
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
func (t *Target) User() string { return cmp.Or(t.flags.userOf(t.seed), "default") }

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

// OnOpen calls f for every open client now, and for each later one when it opens.
func (t *Target) OnOpen(f func(inspect.Client)) { t.servers.onOpen(f) }

// onClose makes Close call f.
func (t *Target) onClose(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closers = append(t.closers, f)
}

// Close closes all sources and clients.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.closers {
		f()
	}
	t.closers = nil
	t.servers.close()
	if tunnel := t.flags.tunnel; tunnel != nil && tunnel.uses.Add(-1) == 0 {
		tunnel.close()
	}
	t.flags.tunnel = nil
}
