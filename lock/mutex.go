package lock

import (
	"context"
	_ "embed"
	"time"

	"locktop/lock/internal/transport"
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

// Mutex is a lock with one holder at a time. It is not reentrant: a holder that locks
// it again waits for itself.
//
// On the server it is one key, a string that holds the token, with a TTL: the result
// of `SET key token NX PX ttl`. A Mutex and other clients that use this command
// exclude each other.
//
// A Mutex is a handle, not a held lock: many goroutines may use one concurrently.
type Mutex struct{ base }

var _ Locker = (*Mutex)(nil)

// Mutex returns the lock with that name; key is used unchanged. It sends nothing. Lock
// and TryLock report invalid options as [ErrArgument].
func (c *Client) Mutex(key string, o Options) *Mutex {
	return &Mutex{c.newBase(key, o, newMutexProtocol(c.transport, key, o.Fence))}
}

// TryLock implements [Locker].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.tryLock(ctx, &request{try: m.attempt})
}

// Lock implements [Locker]. Of the goroutines that wait for a key through one client,
// only the first talks to the server: a thousand waiters cost as much as one.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock(ctx, &request{try: m.attempt})
}

// attempt acquires with trySet if the lock is probably free. Before the server has run
// one of our scripts it uses acquire, which shows that the user may also run the
// release.
func (m *Mutex) attempt(ctx context.Context, r *request) (*Lease, error) {
	ask := m.acquireOnce
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
	return m.acquireOnceBy(ctx, r, func(token string) future { return m.protocol.(*mutexProtocol).trySet(ctx, token, m.opts.TTL) })
}

// mutexProtocol stores the lock as a string that holds the token.
type mutexProtocol struct {
	transport   transport.Transport
	keys        []string // the lock; its fence, if it has one
	freeChannel string
}

func newMutexProtocol(t transport.Transport, key string, fence bool) *mutexProtocol {
	return &mutexProtocol{transport: t, keys: keysOf(key, fence), freeChannel: companionKey(key, "free")}
}

// keysOf returns the key of a lock and, if it is fenced, the key of its counter.
func keysOf(key string, fence bool) []string {
	if fence {
		return []string{key, companionKey(key, "fence")}
	}
	return []string{key}
}

func (p *mutexProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return mutexAcquire.send(ctx, p.transport, p.keys, token, ttl.Milliseconds())
}

// trySet acquires a lock without a fence by SET NX. If the lock is free, this costs
// the server half as much as acquire. If not, the refusal does not name the holder, and
// a second round trip runs the acquire script, which does. SET NX does not recognise its
// own token; this is safe because it is never sent twice.
func (p *mutexProtocol) trySet(ctx context.Context, token string, ttl time.Duration) future {
	c := sendPlain(ctx, p.transport, "set", p.keys[0], token, "nx", "px", ttl.Milliseconds())
	c.fallback = func() (*script, []string) {
		return mutexAcquire, append(mutexAcquire.argv(nil, p.keys), token, millis(ttl))
	}
	return c
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
