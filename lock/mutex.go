package lock

import (
	"context"
	_ "embed"
	"time"
)

var (
	//go:embed mutex_acquire.lua
	mutexAcquireSource string
	//go:embed mutex_extend.lua
	mutexExtendSource string
	//go:embed mutex_release.lua
	mutexReleaseSource string
	//go:embed mutex_peek.lua
	mutexPeekSource string

	mutexAcquire = newScript(mutexAcquireSource)
	mutexExtend  = newScript(mutexExtendSource)
	mutexRelease = newScript(mutexReleaseSource)
	mutexPeek    = newScript(mutexPeekSource)
)

// Mutex is a lock with one holder at a time. It is not reentrant: its holder
// waits for itself like anybody else.
//
// On the wire it is the key itself, a string that holds the token, with a TTL:
// what `SET key token NX PX ttl` makes, so it and clients that use that form
// exclude each other.
//
// A Mutex is something to lock by, not a lock that is held: many goroutines may
// use one at once.
type Mutex struct{ base }

var _ Locker = (*Mutex)(nil)

// Mutex returns the lock of that name; the key is used as it is. It sends
// nothing. Options that cannot work are reported as [ErrArgument] by Lock and
// TryLock.
func (c *Client) Mutex(key string, o Options) *Mutex {
	return &Mutex{c.newBase(key, o, newMutexProtocol(c.transport, key, o.Fence))}
}

// TryLock implements [Locker].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.tryLock(ctx, &request{try: m.attempt})
}

// Lock implements [Locker]. Of all who wait for the key through this client
// only the first talks to the server, so a thousand waiting goroutines cost
// what one does.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock(ctx, &request{try: m.attempt})
}

// attempt asks for a lock that is probably free by what is quickest then, unless
// it is not known yet that we may run the script that gives it back.
func (m *Mutex) attempt(ctx context.Context, r *request) (*Lease, error) {
	ask := m.acquire
	if r.attempts == 0 && !r.contended && !m.opts.Fence && m.client.scripted.Load() {
		ask = m.trySet
	}
	h, err := ask(ctx, r)
	if err != nil {
		return nil, err
	}
	if !m.client.scripted.Load() {
		m.client.scripted.Store(true)
	}
	return newLease(h), nil
}

func (m *Mutex) trySet(ctx context.Context, r *request) (*hold, error) {
	return m.acquireBy(ctx, r, func(token string) future { return m.protocol.(*mutexProtocol).trySet(ctx, token, m.opts.TTL) })
}

// mutexProtocol is a string that holds the token.
type mutexProtocol struct {
	transport   transport
	keys        []string // the lock; its fence, if it has one
	freeChannel string
}

func newMutexProtocol(t transport, key string, fence bool) *mutexProtocol {
	return &mutexProtocol{transport: t, keys: keysOf(key, fence), freeChannel: companionKey(key, "free")}
}

// keysOf returns the keys of a lock: itself and, if it is fenced, its counter.
func keysOf(key string, fence bool) []string {
	if fence {
		return []string{key, companionKey(key, "fence")}
	}
	return []string{key}
}

func (p *mutexProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return p.acquireScript(ctx, token, ttl)
}

func (p *mutexProtocol) acquireScript(ctx context.Context, token string, ttl time.Duration) *call {
	return mutexAcquire.send(ctx, p.transport, p.keys, token, ttl.Milliseconds())
}

// trySet asks for a lock without a fence as acquire does, at half the cost to the
// server if it is free, and by one more round trip if it is not.
func (p *mutexProtocol) trySet(ctx context.Context, token string, ttl time.Duration) future {
	c := sendPlain(ctx, p.transport, "set", p.keys[0], token, "nx", "px", ttl.Milliseconds())
	return &trySetCall{call: c, protocol: p, token: token, ttl: ttl}
}

func (p *mutexProtocol) extend(ctx context.Context, token string, ttl time.Duration) future {
	return mutexExtend.send(ctx, p.transport, p.keys[:1], token, ttl.Milliseconds())
}

func (p *mutexProtocol) release(ctx context.Context, token string, _ int) future {
	return mutexRelease.send(ctx, p.transport, p.keys[:1], token, p.freeChannel)
}

func (p *mutexProtocol) channel() string { return p.freeChannel }

func (p *mutexProtocol) lockKey() string { return p.keys[0] }

func (p *mutexProtocol) peek(ctx context.Context) future {
	return mutexPeek.send(ctx, p.transport, p.keys[:1])
}

// trySetCall is an acquire by SET NX. Refused, it does not learn by whom: it asks again
// by the script, which says so, or takes the lock if it has become free meanwhile.
// SET NX does not know its own token; but it is never sent twice.
type trySetCall struct {
	*call
	protocol *mutexProtocol
	token    string
	ttl      time.Duration
}

// wait implements [pending].
func (c *trySetCall) wait(ctx context.Context) (any, error) {
	reply, err := c.call.wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case reply == okReply:
		return int64(0), nil
	}
	c.call = c.protocol.acquireScript(ctx, c.token, c.ttl)
	return c.call.wait(ctx)
}
