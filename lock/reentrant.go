package lock

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
)

var reentrantScripts = &scripts{
	acquire: newScript("waiters_common", "waiters_acquire", "reentrant_holder", "reentrant_acquire"),
	extend:  newScript("reentrant_extend"),
	release: newQuickRelease(reentrantEnds, "reentrant_release"),
	peek:    newScript("reentrant_holder", "reentrant_peek"),
	counted: true,
}

const reentrantEnds = "local held = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1\nlocal ends, i = held and ARGV[2] == '0', 3\n"

// Reentrant is a lock that its owner may acquire again while it holds it. It is free
// when all leases are unlocked.
//
// The owner is the Reentrant value itself, because goroutines have no identity in Go:
// every goroutine that uses the same value may acquire the lock again. Another value
// for the same key is another owner, also of the same client.
//
// On the server it is a hash of holder → count with a TTL. Other libraries use the
// same format: acquire if the key does not exist or has the holder's field, increase
// the count, set the expiry. A Reentrant and such clients exclude each other and agree
// on the count. All leases of an owner share one deadline.
type Reentrant struct {
	base
	held currentHold
}

var _ Locker = (*Reentrant)(nil)

// Reentrant returns a new owner of the lock with that name. It sends nothing. Lock and
// TryLock report invalid options as [ErrArgument].
func (c *Client) Reentrant(key string, o Options) *Reentrant {
	return &Reentrant{
		base: c.newBase(key, o, newScriptProtocol(reentrantScripts, c.core, key, o.Fence)),
		held: currentHold{attempts: semaphore.NewWeighted(1)},
	}
}

// TryLock implements [Locker].
func (r *Reentrant) TryLock(ctx context.Context) (*Lease, error) {
	return r.tryLock(ctx, &request{try: r.attempt})
}

// Lock implements [Locker]. The owner never waits for itself.
func (r *Reentrant) Lock(ctx context.Context) (*Lease, error) {
	if r.held.get() != nil { // the owner must not queue behind goroutines that wait for it
		lease, err := r.TryLock(ctx)
		if !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	return r.lock(ctx, &request{try: r.attempt})
}

func (r *Reentrant) attempt(ctx context.Context, req *request) (*Lease, error) {
	return r.held.enterOrAcquire(ctx, r.key, req, func() (*hold, error) { return r.acquireOnce(ctx, req) })
}

// currentHold is the hold that an owner may enter again.
type currentHold struct {
	attempts *semaphore.Weighted // admits one attempt of the owner at a time

	mu   sync.Mutex
	hold *hold // nil = none is known
}

// get returns the hold; nil if there is none or it has ended.
func (c *currentHold) get() *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil && !c.hold.valid() {
		c.hold = nil
	}
	return c.hold
}

func (c *currentHold) set(h *hold) {
	h.order = semaphore.NewWeighted(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = h
}

// enterOrAcquire enters the hold again or, without one, calls acquire. key is the name
// of the lock.
func (c *currentHold) enterOrAcquire(ctx context.Context, key string, r *request, acquire func() (*hold, error)) (*Lease, error) {
	if err := c.attempts.Acquire(ctx, 1); err != nil {
		return nil, describe("acquire", key, err)
	}
	defer c.attempts.Release(1)
	if h := c.get(); h != nil {
		lease, err := h.enterAgain(ctx, r)
		if err == nil || h.valid() {
			return lease, err
		}
	}
	h, err := acquire()
	if err != nil {
		return nil, err
	}
	c.set(h)
	return newEntry(h), nil
}
