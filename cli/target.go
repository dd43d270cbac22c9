package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// target is the server, or the servers, of a command.
type target struct {
	rdb     *redis.Client // client of the server, or of one of the servers
	db      int
	title   string // address without credentials
	many    bool   // more than one server or database
	fleet   inspect.MultiOptions
	servers *servers
	timeout time.Duration
	cluster *inspect.Cluster // nil if the servers are not a cluster
	close   func()
}

// look returns a source that scans all servers at each Snapshot. It reports its
// progress to g, which may be nil.
func (t *target) look(s *selection, g *scanProgress) *inspect.MultiSource {
	return inspect.NewMultiSource(t.roster(func(rdb *redis.Client, e endpoint) inspect.Source {
		o := t.options(s, e)
		o.RetryTimeout = t.timeout
		o.Progress = g.of(e)
		return once{inspect.NewScanner(rdb, o), t.presence(rdb)}
	}), t.together(s))
}

// options returns the options of a scan of one server. On the nodes of a Redlock they
// include possible locks, because votes may raise the confidence.
func (t *target) options(s *selection, e endpoint) inspect.ScanOptions {
	o := s.options(e.db, t.servers.pace(e, &s.budget))
	o.Cluster = t.cluster
	if t.fleet.Redlock {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// together returns the options that combine the snapshots of the servers.
func (t *target) together(s *selection) inspect.MultiOptions {
	o := t.fleet
	o.MinConfidence = keyspace.Likely
	if s.all {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// once is a source that scans at each Snapshot.
type once struct {
	*inspect.Scanner
	present func(context.Context) error
}

// Snapshot scans the keyspace.
func (o once) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	if err := o.present(ctx); err != nil {
		return keyspace.Snapshot{}, err
	}
	return o.Scan(ctx)
}

// presence returns a function that checks within the timeout that a server answers.
// A scan of a server that hangs takes several timeouts. For a single server the
// function does nothing, because connect has checked it.
func (t *target) presence(rdb *redis.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		if !t.many {
			return nil
		}
		err := answers(ctx, rdb, t.timeout)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("no answer within %s", humanize.Setting(t.timeout))
		}
		return err
	}
}

// follow watches all servers until the target is closed.
func (t *target) follow(s *selection) *inspect.MultiSource {
	o := t.together(s)
	o.Timeout = t.timeout
	return inspect.NewMultiSource(t.roster(func(rdb *redis.Client, e endpoint) inspect.Source {
		scanner := inspect.NewScanner(rdb, t.options(s, e))
		return inspect.StartWatcher(inspect.NewWatcher(scanner))
	}), o)
}

// roster returns a function that lists the servers with the sources from start. The
// function closes the sources of servers that have left.
func (t *target) roster(start func(*redis.Client, endpoint) inspect.Source) inspect.SourceLister {
	var mu sync.Mutex
	running := make(map[endpoint]inspect.Source)
	end := func(e endpoint) {
		if c, ok := running[e].(interface{ Close() }); ok {
			c.Close()
		}
		delete(running, e)
	}
	closeClients := t.close
	t.close = func() {
		mu.Lock()
		defer mu.Unlock()
		for e := range running {
			end(e)
		}
		closeClients()
	}
	return func(ctx context.Context) ([]inspect.NamedSource, error) {
		where, err := t.servers.where(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		here := make(map[endpoint]bool)
		var all []inspect.NamedSource
		for _, e := range where {
			rdb, err := t.servers.client(e)
			if err != nil {
				return nil, err
			}
			if running[e] == nil {
				running[e] = start(rdb, e)
			}
			here[e] = true
			all = append(all, inspect.NamedSource{Addr: e.addr, Source: running[e]})
		}
		for e := range running {
			if !here[e] {
				end(e)
				t.servers.forget(e)
			}
		}
		return all, nil
	}
}
