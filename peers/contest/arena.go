package contest

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// Arena is where the contenders meet: a redis-server of their own.
type Arena struct {
	server *server.Child
	rdb    *redis.Client
	played int // windows so far
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

// Close ends the server.
func (a *Arena) Close() error { return errors.Join(a.rdb.Close(), a.server.Stop()) }

// Series is what one contender did in every round.
type Series struct {
	Name   string
	Rounds []Sample
}

// play lets the contenders have a window each, and that for so many rounds.
// Every round begins with another of them.
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

// one lets a contender have a window on an empty server.
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

// clear makes ready for another window, without what the one before left: keys
// on the server, garbage in our memory.
func (a *Arena) clear(ctx context.Context) error {
	if err := a.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("clear the server: %w", err)
	}
	runtime.GC()
	a.played++
	return nil
}

// Setting is who locks what in a window.
type Setting struct {
	Clients int
	Apart   bool // every client is a process of its own: it shares no connection and no memory
	Hot     bool // all want one key; else each has its own
	Lease   Lease
	Work    Work
}

// window opens the clients of a contender, lets them work, and closes them.
func (a *Arena) window(ctx context.Context, c Contender, s Setting) (sample Sample, err error) {
	clients, closeAll, err := a.open(c, s)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return Sample{}, err
	}
	return measure(ctx, meter{a.rdb}, clients, s.Work)
}

// open returns the clients that a setting asks for, and what closes them again.
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

// key returns the name of a client's lock. It is another in every window: who
// gives up at the end of one may leave a lock behind.
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
