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
)

// target is the server, or the servers, that are looked at.
type target struct {
	rdb     *redis.Client // of the one server, or of one of them
	db      int
	title   string // where it is, free of credentials
	many    bool   // servers or databases
	fleet   keyspace.MultiOptions
	servers *servers
	timeout time.Duration
	cluster *keyspace.Cluster // nil if it is none
	close   func()
}

// look is a picture of all servers that is taken once, when it is asked for.
// How far it has got is told to g, which may be nil.
func (t *target) look(s *selection, g *scanProgress) *keyspace.MultiSource {
	return keyspace.NewMultiSource(t.roster(func(rdb *redis.Client, e endpoint) keyspace.Source {
		o := t.options(s, e)
		o.RetryTimeout = t.timeout
		o.Progress = g.of(e)
		return once{keyspace.NewScanner(rdb, o), t.presence(rdb)}
	}), t.together(s))
}

// options look for what is selected on one of the servers. Of the servers of a
// Redlock each tells what is just possible: their votes may make more of it.
func (t *target) options(s *selection, e endpoint) keyspace.ScanOptions {
	o := s.options(e.db, t.servers.pace(e, &s.budget))
	o.Cluster = t.cluster
	if t.fleet.Redlock {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// together is what the servers are to each other.
func (t *target) together(s *selection) keyspace.MultiOptions {
	o := t.fleet
	o.MinConfidence = keyspace.Likely
	if s.all {
		o.MinConfidence = keyspace.Possible
	}
	return o
}

// once is a scanner as a source.
type once struct {
	*keyspace.Scanner
	present func(context.Context) error
}

// Snapshot looks through the keyspace.
func (o once) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	if err := o.present(ctx); err != nil {
		return keyspace.Snapshot{}, err
	}
	return o.Scan(ctx)
}

// presence finds out whether one of several servers answers, within the timeout. To
// try to look at one that hangs takes several times as long. Of a single server it is
// known.
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

// follow keeps an eye on all servers, until the target is closed.
func (t *target) follow(s *selection) *keyspace.MultiSource {
	o := t.together(s)
	o.Timeout = t.timeout
	return keyspace.NewMultiSource(t.roster(func(rdb *redis.Client, e endpoint) keyspace.Source {
		scanner := keyspace.NewScanner(rdb, t.options(s, e))
		return keyspace.StartWatcher(keyspace.NewWatcher(scanner))
	}), o)
}

// roster says which servers there are, each with the source that start makes of
// its client. Sources of servers that have gone are closed.
func (t *target) roster(start func(*redis.Client, endpoint) keyspace.Source) keyspace.SourceLister {
	var mu sync.Mutex
	running := make(map[endpoint]keyspace.Source)
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
	return func(ctx context.Context) ([]keyspace.NamedSource, error) {
		where, err := t.servers.where(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		here := make(map[endpoint]bool)
		var all []keyspace.NamedSource
		for _, e := range where {
			rdb, err := t.servers.client(e)
			if err != nil {
				return nil, err
			}
			if running[e] == nil {
				running[e] = start(rdb, e)
			}
			here[e] = true
			all = append(all, keyspace.NamedSource{Addr: e.addr, Source: running[e]})
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
