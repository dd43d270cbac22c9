package contest

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// Testbed runs the contenders on a redis-server of its own.
type Testbed struct {
	server  *server.Child
	rdb     *redis.Client
	windows int // number of windows so far
}

// NewTestbed starts a redis-server without persistence on a free port. Close
// stops it.
func NewTestbed(ctx context.Context) (*Testbed, error) {
	child, err := server.StartChild(ctx, server.ChildOptions{})
	if err != nil {
		return nil, err
	}
	return &Testbed{server: child, rdb: redis.NewClient(&redis.Options{Addr: child.Addr()})}, nil
}

// Close stops the server.
func (t *Testbed) Close() error { return errors.Join(t.rdb.Close(), t.server.Stop()) }

// Series holds the samples of one contender, one per round.
type Series struct {
	Name   string
	Rounds []Sample
}

// runRounds gives each contender one window per round. Every round begins with
// another contender.
func (t *Testbed) runRounds(ctx context.Context, contenders []Contender, rounds int, s Setting) ([]Series, error) {
	all := make([]Series, len(contenders))
	for r := range rounds {
		for i := range contenders {
			i = (i + r) % len(contenders)
			sample, err := t.runWindow(ctx, contenders[i], s)
			if err != nil {
				return nil, err
			}
			all[i].Name = contenders[i].Name
			all[i].Rounds = append(all[i].Rounds, sample)
		}
	}
	return all, nil
}

// runWindow runs a window of one contender on an empty server.
func (t *Testbed) runWindow(ctx context.Context, c Contender, s Setting) (sample Sample, err error) {
	if err := t.clear(ctx); err != nil {
		return Sample{}, err
	}
	clients, closeAll, err := t.open(c, s)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err == nil {
		sample, err = measure(ctx, t.rdb, clients, s.Work)
	}
	if err == nil && sample.Cycles == 0 {
		err = errors.New("the contender never acquired the lock")
	}
	if err != nil {
		return sample, fmt.Errorf("%s: %w", c.Name, err)
	}
	return sample, nil
}

// clear prepares the next window: it deletes all keys and runs the garbage
// collector.
func (t *Testbed) clear(ctx context.Context) error {
	if err := t.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("clear the server: %w", err)
	}
	runtime.GC()
	t.windows++
	return nil
}

// Setting describes the clients and their locks in a window.
type Setting struct {
	Clients int
	Apart   bool // every client is like a process: it shares no connection and no memory
	Hot     bool // all clients want one key; otherwise each has its own
	// ReadEvery is the number of cycles of which one is a reader's, in libraries that tell
	// readers from writers; 0 = none.
	ReadEvery int
	Lease     Lease
	Work      Work
}

// open returns the clients of a setting and a function that closes them.
func (t *Testbed) open(c Contender, s Setting) (clients []Client, closeAll func() error, err error) {
	var processes []Process
	closeAll = func() error {
		var errs []error
		for _, p := range processes {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	for i := range s.Clients {
		if s.Apart || i == 0 {
			p, err := c.Open(t.server.Addr(), s.Lease)
			if err != nil {
				return nil, closeAll, err
			}
			processes = append(processes, p)
		}
		p, key := processes[len(processes)-1], t.key(i, s.Hot)
		client := p.Client(key)
		if s.ReadEvery > 0 && p.Reader != nil {
			client = alternating(p.Reader(key), client, s.ReadEvery, i)
		}
		clients = append(clients, client)
	}
	return clients, closeAll, nil
}

// key returns the name of a client's lock. The name changes in every window,
// because a client that gives up at the end of a window may leave a lock
// behind.
func (t *Testbed) key(client int, hot bool) string {
	if hot {
		client = 0
	}
	return fmt.Sprintf("contest:%d:%d", t.windows, client)
}

// Version returns the version of the server.
func (t *Testbed) Version(ctx context.Context) (string, error) {
	info, err := t.rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask the server for its version: %w", err)
	}
	return info["Server"]["redis_version"], nil
}
