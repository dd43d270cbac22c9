package lock

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Lease is a lock that is ours for a time. It is safe for concurrent use, also
// by goroutines other than the one that acquired it. A lease that is dropped
// without being unlocked, and its contexts with it, is no longer renewed once the
// garbage collector finds it, and its lock is free when the TTL has passed.
//
// Nil and the zero value are no leases: they are not valid, have no key and a context
// that has ended, and to extend or unlock them is [ErrArgument].
type Lease struct {
	hold     *hold
	ctx      context.Context         // nil = the hold's own
	cancel   context.CancelCauseFunc // of ctx
	unlocked atomic.Bool             // Unlock was called
	cleanup  runtime.Cleanup
}

// newLease returns the only lease of a hold.
func newLease(h *hold) *Lease {
	l := &Lease{hold: h}
	l.cleanup = runtime.AddCleanup(l, (*hold).leaseDropped, h)
	return l
}

// newEntry returns one of several leases of a hold, with an end of its own.
func newEntry(h *hold) *Lease {
	l := newLease(h)
	l.ctx, l.cancel = context.WithCancelCause(h.context())
	return l
}

// Key returns the name of the lock.
func (l *Lease) Key() string {
	if l.isZero() {
		return ""
	}
	return l.hold.base.key
}

// Token returns what the server stores as the holder. Whoever knows it can
// release the lock.
func (l *Lease) Token() string {
	if l.isZero() {
		return ""
	}
	return l.hold.token
}

// Fence returns the fencing token: a number that is larger for every later
// holder of the lock, whatever became of the earlier ones, as long as the server
// keeps its data. Send it along with every write that the lock protects, and
// have the resource refuse a number smaller than the largest it has seen: then a
// holder that does not know yet that its time is up can do no harm. It is 0
// unless [Options.Fence] is set.
func (l *Lease) Fence() int64 {
	if l.isZero() {
		return 0
	}
	return l.hold.fence
}

// Deadline returns when the lease ends unless it is renewed, on this process'
// clock. It lies before the moment at which the lock is free on the server.
func (l *Lease) Deadline() time.Time {
	if l.isZero() {
		return time.Time{}
	}
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.deadline()
}

// Valid reports whether the lock is ours at this moment, by the clock alone:
// no I/O, no waiting for a timer. Ask it right before doing what the lock
// protects.
func (l *Lease) Valid() bool { return !l.isZero() && !l.unlocked.Load() && l.hold.valid() }

// isZero reports whether nobody acquired the lease.
func (l *Lease) isZero() bool { return l == nil || l.hold == nil }

// Context ends when the lease does. [context.Cause] then tells why: ErrReleased,
// ErrLost, ErrMaxHold or ErrClosed. A lost lease never comes back to life. As long as
// the context is used, the lease is kept alive. See ContextFrom for one that carries
// values.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		return noLease
	}
	return leaseContext{l.endContext(), l}
}

// ContextFrom returns a context that carries the values of parent and ends with it or
// with the lease, whichever is first; [context.Cause] then tells that one's cause.
func (l *Lease) ContextFrom(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	own := l.Context()
	if own.Err() != nil {
		cancel(context.Cause(own))
	}
	context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return leaseContext{ctx, l}
}

// endContext returns the context that ends with the lease.
func (l *Lease) endContext() context.Context {
	if l.ctx != nil {
		return l.ctx
	}
	return l.hold.context()
}

// leaseContext keeps its lease from being taken for dropped.
type leaseContext struct {
	context.Context
	lease *Lease
}

// noLease is the context of what was never acquired.
var noLease = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: no lease was acquired", ErrArgument))
	return ctx
}()

// Extend gives the lease ttl from now, whatever was left of it. [ErrLost] means
// that the lock is no longer ours; nothing was changed on the server. If ctx
// ends before the reply, the lease keeps the earlier of the two deadlines.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if l.isZero() {
		return fmt.Errorf("extend lock: %w: no lease was acquired", ErrArgument)
	}
	if err := checkTTL(ttl); err != nil {
		return fmt.Errorf("extend lock %q: %w", l.hold.base.key, err)
	}
	if l.unlocked.Load() {
		return fmt.Errorf("extend lock %q: %w", l.hold.base.key, l.endCause())
	}
	return l.hold.extend(ctx, ttl)
}

// Unlock gives the lock back and ends the lease's context with [ErrReleased].
// A lease that is over returns why (ErrLost, ErrReleased, …) and touches
// nothing. When Unlock returns nil, no renewal of it is in flight and none
// follows. If ctx ends before the reply, also if it ended long ago, the release
// goes on in the background and the error matches ctx.Err().
func (l *Lease) Unlock(ctx context.Context) error {
	if l.isZero() {
		return fmt.Errorf("unlock: %w: no lease was acquired", ErrArgument)
	}
	if l.unlocked.Swap(true) {
		return fmt.Errorf("unlock %q: %w", l.hold.base.key, l.endCause())
	}
	l.cleanup.Stop()
	err := l.hold.exit(ctx)
	if l.cancel != nil {
		l.cancel(ErrReleased)
	}
	return err
}

// endCause returns why a lease is over that was unlocked, or is being unlocked.
func (l *Lease) endCause() error {
	if l.ctx != nil {
		return cmp.Or(context.Cause(l.ctx), ErrReleased)
	}
	return cmp.Or(l.hold.endCause(), ErrReleased)
}
