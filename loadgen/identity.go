package loadgen

import (
	"context"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// identity is one party to the locks: nobody else unlocks what it locked. It is
// an interface because not every lock that a fleet can fight over is one of
// package lock: the historic forms hand out leases of their own, and the oracle
// is tried on forms that are broken.
type identity interface {
	// as returns another identity over the same connections.
	as(owner string) identity
	// lock waits until the key is held, or ctx ends.
	lock(ctx context.Context, key string) (lease, error)
	// close releases what is still held. That of the first identity also ends
	// what all those made from it share.
	close() error
}

// lease is what a simulated client needs of a [lock.Lease].
type lease interface {
	validity
	// Context ends with the lease.
	Context() context.Context
	// Unlock returns lock.ErrLost if the lease was over already.
	Unlock(context.Context) error
}

// mutexes is an identity that locks with [lock.Mutex].
type mutexes struct {
	client  *lock.Client
	options lock.Options
}

func openMutexes(rdb redis.UniversalClient, s Scenario) (identity, error) {
	client, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return nil, err
	}
	return mutexes{client, lock.Options{TTL: s.TTL, Renew: lock.Renew{Off: !s.Renew}}}, nil
}

func (m mutexes) as(owner string) identity { return mutexes{m.client.As(owner), m.options} }

func (m mutexes) close() error { return m.client.Close() }

func (m mutexes) lock(ctx context.Context, key string) (lease, error) {
	l, err := m.client.Mutex(key, m.options).Lock(ctx)
	if err != nil {
		return nil, err // not a nil *lock.Lease in an interface that is not nil
	}
	return l, nil
}
