package lock

import (
	"context"
	"slices"
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

// reentrant is the lock of [Client.Reentrant].
type reentrant struct {
	locker
	held currentHold
}

// Reentrant returns a new owner of the lock with that name, which its owner may acquire again
// while it holds it. The lock is free when all leases are unlocked. Reentrant sends nothing.
//
// The owner is the returned value itself, because goroutines have no identity in Go: every
// goroutine that uses it may acquire the lock again, and none waits for another one of them.
// Another value for the same key is another owner, also of the same client.
//
// On the server it is a hash of holder → count with a TTL. Other libraries use the
// same format: acquire if the key does not exist or has the holder's field, increase
// the count, set the expiry. A Reentrant and such clients exclude each other and agree
// on the count. All leases of an owner share one deadline.
func (c *Client) Reentrant(key string, o Options) (Locker, error) {
	b, err := c.newBase(key, o, "a reentrant lock")
	if err != nil {
		return nil, err
	}
	b.protocol = newScriptProtocol(reentrantScripts, c.core, key, o.Fence)
	r := &reentrant{locker: locker{base: b}}
	newOwner(&r.held)
	r.waiting.owner = r.held.owner
	r.try = func(ctx context.Context, req *request) (*Lease, error) {
		return r.held.enterOrAcquire(ctx, key, req, func() (*hold, error) { return r.acquireOnce(ctx, req) })
	}
	return r, nil
}

// owner is what the holds of one owner share: one hold, or one per side of a [Client.RW].
type owner struct {
	attempts *semaphore.Weighted // admits one attempt at a time
	holds    []*currentHold
	acquired broadcast
}

func newOwner(holds ...*currentHold) {
	o := &owner{attempts: semaphore.NewWeighted(1), holds: holds}
	for _, h := range holds {
		h.owner = o
	}
}

// holdsAny reports whether the owner holds the lock, or a side of it. A nil owner holds none.
func (o *owner) holdsAny() bool {
	return o != nil && slices.ContainsFunc(o.holds, func(c *currentHold) bool { return c.get() != nil })
}

// nextAcquire returns a channel that is closed when the owner acquires the lock the next
// time: then its other goroutines need not wait. That of a nil owner is never closed.
func (o *owner) nextAcquire() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.acquired.next()
}

// currentHold is the hold that an owner may enter again.
type currentHold struct {
	owner *owner

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
	c.hold = h
	c.mu.Unlock()
	c.owner.acquired.wake()
}

// enterOrAcquire enters the hold again or, without one, calls acquire. key is the name
// of the lock.
func (c *currentHold) enterOrAcquire(ctx context.Context, key string, r *request, acquire func() (*hold, error)) (*Lease, error) {
	if err := c.owner.attempts.Acquire(ctx, 1); err != nil {
		return nil, describe("acquire", key, err)
	}
	defer c.owner.attempts.Release(1)
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
