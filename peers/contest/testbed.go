package contest

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// Arena runs the contenders on a redis-server of its own.
type Arena struct {
	server *server.Child
	rdb    *redis.Client
	played int // number of windows so far
}

// NewArena starts a redis-server without persistence on a free port. Close
// stops it.
func NewArena(ctx context.Context) (*Arena, error) {
	child, err := server.StartChild(ctx, server.ChildOptions{})
	if err != nil {
		return nil, err
	}
	return &Arena{server: child, rdb: redis.NewClient(&redis.Options{Addr: child.Addr()})}, nil
}

// Close stops the server.
func (a *Arena) Close() error { return errors.Join(a.rdb.Close(), a.server.Stop()) }

// Series holds the samples of one contender, one per round.
type Series struct {
	Name   string
	Rounds []Sample
}

// play gives each contender one window per round. Every round begins with
// another contender.
func (a *Arena) play(ctx context.Context, who []Contender, rounds int, window func(context.Context, Contender) (Sample, error)) ([]Series, error) {
	all := make([]Series, len(who))
	for r := range rounds {
		for i := range who {
			i = (i + r) % len(who)
			sample, err := a.one(ctx, who[i], window)
			if err != nil {
				return nil, err
			}
			all[i].Name = who[i].Name
			all[i].Rounds = append(all[i].Rounds, sample)
		}
	}
	return all, nil
}

// one runs a window of one contender on an empty server.
func (a *Arena) one(ctx context.Context, c Contender, window func(context.Context, Contender) (Sample, error)) (Sample, error) {
	if err := a.clear(ctx); err != nil {
		return Sample{}, err
	}
	sample, err := window(ctx, c)
	if err == nil && sample.Cycles == 0 {
		err = errors.New("it never had the lock")
	}
	if err != nil {
		return sample, fmt.Errorf("%s: %w", c.Name, err)
	}
	return sample, nil
}

// clear prepares the next window: it deletes all keys and runs the garbage
// collector.
func (a *Arena) clear(ctx context.Context) error {
	if err := a.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("clear the server: %w", err)
	}
	runtime.GC()
	a.played++
	return nil
}

// Setting describes the clients and their locks in a window.
type Setting struct {
	Clients int
	Apart   bool // every client is like a process: it shares no connection and no memory
	Hot     bool // all clients want one key; otherwise each has its own
	Lease   Lease
	Work    Work
}

// window opens the clients of a contender, runs them, and closes them.
func (a *Arena) window(ctx context.Context, c Contender, s Setting) (sample Sample, err error) {
	clients, closeAll, err := a.open(c, s)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return Sample{}, err
	}
	return measure(ctx, meter{a.rdb}, clients, s.Work)
}

// open returns the clients of a setting and a function that closes them.
func (a *Arena) open(c Contender, s Setting) (clients []Client, closeAll func() error, err error) {
	var fleets []Fleet
	closeAll = func() error {
		var errs []error
		for _, f := range fleets {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for i := range s.Clients {
		if s.Apart || i == 0 {
			f, err := c.Open(a.server.Addr(), s.Lease)
			if err != nil {
				return nil, closeAll, err
			}
			fleets = append(fleets, f)
		}
		clients = append(clients, fleets[len(fleets)-1].Client(a.key(i, s.Hot)))
	}
	return clients, closeAll, nil
}

// key returns the name of a client's lock. The name changes in every window,
// because a client that gives up at the end of a window may leave a lock
// behind.
func (a *Arena) key(client int, hot bool) string {
	if hot {
		client = 0
	}
	return fmt.Sprintf("contest:%d:%d", a.played, client)
}

// Version returns the version of the server.
func (a *Arena) Version(ctx context.Context) (string, error) {
	info, err := a.rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask the server for its version: %w", err)
	}
	return info["Server"]["redis_version"], nil
}
