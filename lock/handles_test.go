package lock_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// client is a [lock.Client] whose locks report their invalid arguments themselves.
type client struct{ *lock.Client }

// open returns a client that the test must close.
func (r tester) open(via redis.UniversalClient, cfg lock.Config) *client {
	r.Helper()
	return &client{check.Must(lock.New(via, cfg))(r)}
}

func (c *client) As(owner string) *client { return &client{c.Client.As(owner)} }

func (c *client) Mutex(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Mutex(key, o))
}
func (c *client) Fair(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Fair(key, o))
}
func (c *client) Reentrant(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Reentrant(key, o))
}
func (c *client) All(keys []string, o lock.Options) lock.Locker {
	return orRefused(c.Client.All(keys, o))
}
func (c *client) Semaphore(key string, limit int, o lock.Options) *lock.Semaphore {
	s, err := c.Client.Semaphore(key, limit, o)
	if err != nil {
		return &lock.Semaphore{}
	}
	return s
}

func (c *client) RW(key string, o lock.Options) *rw {
	reader, writer, err := c.Client.RW(key, o)
	return &rw{orRefused(reader, err), orRefused(writer, err)}
}

// rw is an owner of a read/write lock.
type rw struct{ reader, writer lock.Locker }

func (rw *rw) Reader() lock.Locker { return rw.reader }
func (rw *rw) Writer() lock.Locker { return rw.writer }

// quorum is a [lock.Quorum] whose locks report their invalid arguments themselves.
type quorum struct{ *lock.Quorum }

func (q *quorum) As(owner string) *quorum { return &quorum{q.Quorum.As(owner)} }

func (q *quorum) Redlock(key string, o lock.Options) lock.Locker {
	return orRefused(q.Quorum.Redlock(key, o))
}

// orRefused returns a lock; that of an error returns the error from each method.
func orRefused(l lock.Locker, err error) lock.Locker {
	if err != nil {
		return refused{err}
	}
	return l
}

// refused is a lock with invalid arguments.
type refused struct{ error }

func (l refused) TryLock(context.Context) (*lock.Lease, error)    { return nil, l.error }
func (l refused) Lock(context.Context) (*lock.Lease, error)       { return nil, l.error }
func (l refused) Holder(context.Context) (*lock.HeldError, error) { return nil, l.error }

// fenceOf returns the fence of a lease; 0 if it has none.
func fenceOf(lease *lock.Lease) int64 {
	fence, _ := lease.Fence()
	return fence
}
