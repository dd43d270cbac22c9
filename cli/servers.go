package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace/inspect"
)

// locateEvery is how long the result of locate stays valid.
const locateEvery = 2 * time.Second

// servers are the connections to all servers. Their list may change with a cluster or
// a Sentinel. It is safe for concurrent use.
type servers struct {
	connect func(endpoint) (*redis.Client, error)
	locate  func(context.Context, *servers) ([]endpoint, error)
	opened  func(*redis.Client) // may be nil

	mu      sync.Mutex
	clients map[endpoint]*redis.Client
	paces   map[string]*inspect.Budget // by address: databases of one server share its budget
	known   []endpoint                 // last result of locate
	asked   time.Time
}

// fixed returns a locate function for servers that never move.
func fixed(all []endpoint) func(context.Context, *servers) ([]endpoint, error) {
	return func(context.Context, *servers) ([]endpoint, error) { return all, nil }
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

// client returns the client of a server. The first call opens it.
func (v *servers) client(e endpoint) (*redis.Client, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rdb, ok := v.clients[e]; ok {
		return rdb, nil
	}
	rdb, err := v.connect(e)
	if err != nil {
		return nil, err
	}
	if v.opened != nil {
		v.opened(rdb)
	}
	if v.clients == nil {
		v.clients = make(map[endpoint]*redis.Client)
	}
	v.clients[e] = rdb
	return rdb, nil
}

// onOpen calls f for every open client now, and for each later one when it opens.
func (v *servers) onOpen(f func(*redis.Client)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opened = f
	for _, rdb := range v.clients {
		f(rdb)
	}
}

// pace returns the budget of a server, which its databases share.
func (v *servers) pace(e endpoint, b *budget) *inspect.Budget {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.paces[e.addr]
	if !ok {
		p = b.pace()
		if v.paces == nil {
			v.paces = make(map[string]*inspect.Budget)
		}
		v.paces[e.addr] = p
	}
	return p
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
	var all []endpoint
	for e := range v.clients {
		all = append(all, e)
	}
	slices.SortFunc(all, endpoint.compare)
	return all
}
