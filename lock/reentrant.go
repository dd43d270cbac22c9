package lock

import (
	"context"
	_ "embed"
	"errors"
	"time"
)

var (
	//go:embed reentrant_acquire.lua
	reentrantAcquireSource string
	//go:embed reentrant_extend.lua
	reentrantExtendSource string
	//go:embed reentrant_release.lua
	reentrantReleaseSource string
	//go:embed reentrant_peek.lua
	reentrantPeekSource string

	reentrantAcquire = newScript(reentrantAcquireSource)
	reentrantExtend  = newScript(reentrantExtendSource)
	reentrantRelease = newScript(reentrantReleaseSource)
	reentrantPeek    = newScript(reentrantPeekSource)
)

// Reentrant is a lock that its owner may take again while it holds it; it is
// free when every lease has been unlocked.
//
// The owner is the Reentrant itself: goroutines have no identity in Go, so who
// is let in again is whoever is given the same value, in any goroutine. Another
// value for the same key, of the same client or not, is another owner.
//
// On the wire it is a hash of holder → count with a TTL: the widespread form
// that takes the lock if it does not exist or has the holder's field, adds to
// the count and sets the expiry. It and clients that use that form exclude each
// other and agree on counts. All leases of an owner share one deadline.
type Reentrant struct {
	base

	entryGate gate
	held      currentHold
}

var _ Locker = (*Reentrant)(nil)

// Reentrant returns a new owner of the lock of that name. It sends nothing.
// Options that cannot work are reported as [ErrArgument] by Lock and TryLock.
func (c *Client) Reentrant(key string, o Options) *Reentrant {
	return &Reentrant{
		base:      c.newBase(key, o, newReentrantProtocol(c.transport, key, o.Fence)),
		entryGate: newGate(),
	}
}

// TryLock implements [Locker].
func (r *Reentrant) TryLock(ctx context.Context) (*Lease, error) {
	return r.tryLock(ctx, &request{try: r.attempt})
}

// Lock implements [Locker]. The owner never waits for itself.
func (r *Reentrant) Lock(ctx context.Context) (*Lease, error) {
	if r.held.get() != nil { // not behind those of our own process who wait for us
		lease, err := r.TryLock(ctx)
		if !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	return r.lock(ctx, &request{try: r.attempt})
}

// attempt enters the lock again if it is ours, else asks for it.
func (r *Reentrant) attempt(ctx context.Context, req *request) (*Lease, error) {
	if err := r.entryGate.enter(ctx); err != nil {
		return nil, describe("acquire", r.key, err)
	}
	defer r.entryGate.leave()
	if h := r.held.get(); h != nil {
		lease, err := h.enterAgain(ctx, req)
		if err == nil || h.valid() {
			return lease, err
		}
	}
	h, err := r.acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	r.held.set(h)
	return newEntry(h), nil
}

// reentrantProtocol is a hash of holder → count.
type reentrantProtocol struct {
	transport   transport
	keys        []string // the lock; its fence, if it has one
	freeChannel string
}

func newReentrantProtocol(t transport, key string, fence bool) *reentrantProtocol {
	return &reentrantProtocol{transport: t, keys: keysOf(key, fence), freeChannel: companionKey(key, "free")}
}

func (p *reentrantProtocol) acquire(ctx context.Context, token string, ttl time.Duration, entries int) future {
	return reentrantAcquire.send(ctx, p.transport, p.keys, token, ttl.Milliseconds(), entries)
}

func (p *reentrantProtocol) extend(ctx context.Context, token string, ttl time.Duration) future {
	return reentrantExtend.send(ctx, p.transport, p.keys[:1], token, ttl.Milliseconds())
}

func (p *reentrantProtocol) release(ctx context.Context, token string, left int) future {
	return reentrantRelease.send(ctx, p.transport, p.keys[:1], token, left, p.freeChannel)
}

func (p *reentrantProtocol) channel() string { return p.freeChannel }

func (p *reentrantProtocol) lockKey() string { return p.keys[0] }

func (p *reentrantProtocol) peek(ctx context.Context) future {
	return reentrantPeek.send(ctx, p.transport, p.keys[:1])
}
