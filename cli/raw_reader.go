package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/tui"
)

// location is a database on a server.
type location struct {
	addr string
	db   int
}

// rawReader reads stored keys from the servers for the screen. It is safe for
// concurrent use.
type rawReader struct {
	client  func(location) (*redis.Client, bool)
	options inspect.ScanOptions

	mu       sync.Mutex
	scanners map[*redis.Client]*inspect.Scanner
}

// Stored returns the keys of a lock from every server that may have it. It returns
// an error only if no server answers.
func (v *rawReader) Stored(ctx context.Context, l keyspace.Lock) ([]tui.RawEntry, error) {
	sites := []location{{l.Node, l.DB}}
	if len(l.Votes) > 0 {
		sites = nil
		for _, vote := range l.Votes {
			sites = append(sites, location{vote.Node, l.DB})
		}
	}
	var all []tui.RawEntry
	var failed []error
	for _, at := range sites {
		rdb, ok := v.client(at)
		if !ok {
			continue
		}
		sight, err := v.scanner(rdb, at).ReadKey(ctx, l.Key)
		if err != nil {
			failed = append(failed, err)
		}
		for _, e := range sight.Entries {
			all = append(all, tui.RawEntry{Node: at.addr, Entry: e})
		}
	}
	if len(failed) == len(sites) {
		return nil, errors.Join(failed...)
	}
	return all, nil
}

// scanner returns the scanner for one client.
func (v *rawReader) scanner(rdb *redis.Client, at location) *inspect.Scanner {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.scanners[rdb]
	if s == nil {
		o := v.options
		o.DB = at.db
		s = inspect.NewScanner(rdb, o)
		if v.scanners == nil {
			v.scanners = make(map[*redis.Client]*inspect.Scanner)
		}
		v.scanners[rdb] = s
	}
	return s
}

// rawReader returns a rawReader for all servers of the target.
func (t *target) rawReader(s *selection) *rawReader {
	o := s.options(0, nil)
	o.Match, o.MinConfidence = nil, keyspace.Possible
	return &rawReader{options: o, client: func(at location) (*redis.Client, bool) {
		for _, e := range t.servers.endpoints() {
			if e.addr == at.addr && e.db == at.db {
				rdb, err := t.servers.client(e)
				return rdb, err == nil
			}
		}
		return nil, false
	}}
}

// shelves returns a rawReader for all servers of the demo. Its connections are not
// subject to the faults of the load.
func (a *demoSource) shelves(s *selection) *rawReader {
	o := s.options(0, nil)
	o.Match, o.MinConfidence = nil, keyspace.Possible
	return &rawReader{options: o, client: func(at location) (*redis.Client, bool) {
		for _, rdb := range a.clients {
			if rdb.Options().Addr == at.addr {
				return rdb, true
			}
		}
		return nil, false
	}}
}
