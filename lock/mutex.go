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
	//go:embed mutex_look.lua
	mutexLookSource string

	mutexAcquire = newScript(mutexAcquireSource)
	mutexExtend  = newScript(mutexExtendSource)
	mutexRelease = newScript(mutexReleaseSource)
	mutexLook    = newScript(mutexLookSource)
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
type Mutex struct{ target }

var _ Locker = (*Mutex)(nil)

// Mutex returns the lock of that name; the key is used as it is. It sends
// nothing. Options that cannot work are reported as [ErrArgument] by Lock and
// TryLock.
func (c *Client) Mutex(key string, o Options) *Mutex {
	return &Mutex{c.newTarget(key, o, newMutexForm(c.wire, key, o.Fence))}
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
		ask = m.bid
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

func (m *Mutex) bid(ctx context.Context, r *request) (*hold, error) {
	return m.acquireBy(ctx, r, func(token string) pending { return m.form.(*mutexForm).bid(ctx, token, m.opts.TTL) })
}

// mutexForm is a string that holds the token.
type mutexForm struct {
	wire wire
	keys []string // the lock; its fence, if it has one
	free string
}

func newMutexForm(w wire, key string, fence bool) *mutexForm {
	return &mutexForm{wire: w, keys: keysOf(key, fence), free: name(key, "free")}
}

// keysOf returns the keys of a lock: itself and, if it is fenced, its counter.
func keysOf(key string, fence bool) []string {
	if fence {
		return []string{key, name(key, "fence")}
	}
	return []string{key}
}

func (f *mutexForm) acquire(ctx context.Context, token string, ttl time.Duration, _ int) pending {
	return f.ask(ctx, token, ttl)
}

func (f *mutexForm) ask(ctx context.Context, token string, ttl time.Duration) *call {
	return mutexAcquire.send(ctx, f.wire, f.keys, token, ttl.Milliseconds())
}

// bid asks for a lock without a fence as acquire does, at half the cost to the
// server if it is free, and by one more round trip if it is not.
func (f *mutexForm) bid(ctx context.Context, token string, ttl time.Duration) pending {
	c := sendPlain(ctx, f.wire, "set", f.keys[0], token, "nx", "px", ttl.Milliseconds())
	return &bid{call: c, form: f, token: token, ttl: ttl}
}

func (f *mutexForm) extend(ctx context.Context, token string, ttl time.Duration) pending {
	return mutexExtend.send(ctx, f.wire, f.keys[:1], token, ttl.Milliseconds())
}

func (f *mutexForm) release(ctx context.Context, token string, _ int) pending {
	return mutexRelease.send(ctx, f.wire, f.keys[:1], token, f.free)
}

func (f *mutexForm) channel() string { return f.free }

func (f *mutexForm) lockKey() string { return f.keys[0] }

func (f *mutexForm) look(ctx context.Context) pending {
	return mutexLook.send(ctx, f.wire, f.keys[:1])
}

// bid is an acquire by SET NX. Refused, it does not learn by whom: it asks again
// by the script, which says so, or takes the lock if it has become free meanwhile.
// SET NX does not know its own token; but it is never sent twice.
type bid struct {
	*call
	form  *mutexForm
	token string
	ttl   time.Duration
}

// wait implements [pending].
func (b *bid) wait(ctx context.Context) (any, error) {
	reply, err := b.call.wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case reply == okReply:
		return int64(0), nil
	}
	b.call = b.form.ask(ctx, b.token, b.ttl)
	return b.call.wait(ctx)
}
