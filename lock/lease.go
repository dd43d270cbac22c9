package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Lease is an acquired lock, until the lease ends. It is safe for concurrent use, also
// by goroutines other than the one that acquired it. If a Lease and its contexts
// become unreachable without Unlock, its renewal stops after the next garbage
// collection, and the lock is free when the TTL has passed. A context that was derived
// from one of them is reachable until it is cancelled.
//
// A nil Lease and the zero value are not valid and have no key. Their context has
// ended, and Extend and Unlock return [ErrArgument].
type Lease struct {
	hold     *hold
	ctx      context.Context         // nil = the context of the hold
	cancel   context.CancelCauseFunc // cancels ctx
	unlocked atomic.Bool             // Unlock was called
	cleanup  runtime.Cleanup
}

// newLease returns the only lease of a hold.
func newLease(h *hold) *Lease {
	l := &Lease{hold: h}
	l.cleanup = runtime.AddCleanup(l, (*hold).leaseDropped, h)
	return l
}

// newEntry returns one of several leases of a hold, with its own context.
func newEntry(h *hold) *Lease {
	l := newLease(h)
	l.ctx, l.cancel = context.WithCancelCause(h.context())
	return l
}

// Key returns the name of the lock. For a [Client.All] these are all keys, joined by ", ".
func (l *Lease) Key() string { return l.possession().base.key }

// Token returns the value that identifies this holder on the server. A client that
// knows it can release the lock.
func (l *Lease) Token() string { return l.possession().token }

// Fence returns the fencing token; ok is false unless [Options.Fence] is set. Every later holder
// of the lock gets a larger number, as long as the server keeps its data. Send it with
// every write that the lock protects, and have the resource refuse a number that is
// smaller than the largest it has seen. A holder that does not know yet that its lease
// has expired can then do no harm.
func (l *Lease) Fence() (fence int64, ok bool) {
	h := l.possession()
	return h.fence, h.base.opts.Fence
}

// Deadline returns when the lease ends unless it is renewed, on the clock of this
// process. The server frees the lock later than that.
func (l *Lease) Deadline() time.Time {
	if l.isZero() {
		return time.Time{}
	}
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.deadline()
}

// Valid reports whether the lease has not ended. It only reads the clock: it does no
// I/O and does not depend on a timer. Call it right before each action that the lock
// protects.
func (l *Lease) Valid() bool { return !l.isZero() && !l.unlocked.Load() && l.hold.valid() }

// isZero reports whether l is nil or the zero value.
func (l *Lease) isZero() bool { return l == nil || l.hold == nil }

// possession returns the hold of the lease; that of a zero one is empty.
func (l *Lease) possession() *hold {
	if l.isZero() {
		return &hold{base: &base{}}
	}
	return l.hold
}

// Context returns a context that ends with the lease. [context.Cause] is then one of
// [ErrClosed], after Unlock or [Client.Close], and [ErrLost]. A lost lease never becomes valid
// again. While the context is in use, the lease is renewed. See ContextFrom for a
// context with values.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		return noLease
	}
	return leaseContext{l.endContext(), l}
}

// ContextFrom returns a context with the values of parent. It ends with parent or with
// the lease, whichever is first, and has the same [context.Cause]. When it has ended, it
// uses no memory of the lease.
func (l *Lease) ContextFrom(parent context.Context) context.Context {
	end := l.endContext() // not l.Context(): the hold would keep the lease reachable
	if parent.Done() == end.Done() {
		return leaseContext{parent, l} // parent is a context of the lease
	}
	ctx, cancel := context.WithCancelCause(parent)
	if end.Err() != nil {
		cancel(context.Cause(end))
	} else {
		forget := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
		context.AfterFunc(ctx, func() { forget() })
	}
	return leaseContext{ctx, l}
}

// endContext returns the context that ends with the lease. It has no reference to the
// lease.
func (l *Lease) endContext() context.Context {
	switch {
	case l.isZero():
		return noLease
	case l.ctx != nil:
		return l.ctx
	default:
		return l.hold.context()
	}
}

// leaseContext keeps its lease reachable for the garbage collector.
type leaseContext struct {
	context.Context
	lease *Lease
}

type leaseKey struct{}

// Value returns the lease for [LeaseFrom].
func (c leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

// LeaseFrom returns the lease to which ctx belongs: a context of [Lease.Context],
// [Lease.ContextFrom], [Do] or [Elect], or one that is derived from it. It returns nil
// if there is none, and nil accessors such as [Lease.Valid] return zero values.
func LeaseFrom(ctx context.Context) *Lease {
	lease, _ := ctx.Value(leaseKey{}).(*Lease)
	return lease
}

// noLease is the context of a nil or zero Lease.
var noLease = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: no lease was acquired", ErrArgument))
	return ctx
}()

// Extend sets the remaining time of the lease to ttl, from now. It may be shorter than
// before. [ErrLost] means that the lock no longer belongs to this lease; the server
// has changed nothing. If ctx ends before the reply, the lease keeps the earlier of
// the old and the new deadline.
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
	return l.hold.setTTL(ctx, ttl)
}

// Unlock releases the lock and ends the lease's context with [ErrClosed]. If the
// lease has ended before, Unlock changes nothing and returns the cause: [ErrLost], or ErrClosed
// if it was unlocked. After Unlock has returned nil, no renewal is in flight and none
// follows. If ctx ends before the reply, or has ended before the call, the release
// continues in the background, and the error matches ctx.Err().
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
		l.cancel(errReleased)
	}
	return err
}

// released reports whether Unlock was called before the lease ended for another reason.
func (l *Lease) released() bool {
	return l.unlocked.Load() && (errors.Is(l.hold.endCause(), errReleased) || l.hold.valid())
}

// endCause returns the cause of the end of a lease on which Unlock was called.
func (l *Lease) endCause() error {
	if l.ctx != nil {
		return cmp.Or(context.Cause(l.ctx), errReleased)
	}
	return cmp.Or(l.hold.endCause(), errReleased)
}

// unlockTimeout limits how long Do waits for the release.
const unlockTimeout = 5 * time.Second

// Do locks l, calls f and unlocks l, also if f panics. The context of f ends with ctx
// or with the lease, whichever is first. Do waits for the lock as [Locker].Lock does.
// It returns the error of f joined with the error of [Lease.Unlock], which tells
// whether the lease was lost. Do waits at most 5 s for the release, also after ctx has
// ended.
func Do(ctx context.Context, l Locker, f func(ctx context.Context) error) (err error) {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.unlockWithin(ctx)) }()
	return f(lease.ContextFrom(ctx))
}

// unlockWithin unlocks the lease within unlockTimeout, also after ctx has ended.
func (l *Lease) unlockWithin(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	return l.Unlock(bounded)
}

// Elect elects a leader among the callers that use the same lock, and runs f while this
// caller leads. It waits for l as [Locker].Lock does, and unlocks l when f returns, also
// if f panics. The context of f ends with ctx or with the lease, whichever is first: by
// the local deadline, so before another caller can lead. [LeaseFrom] returns the lease
// in f; its fence, if the lock has one, is larger than those of all earlier leaders.
//
// If the lease ends while f runs, Elect waits until f returns, and then for l again. So
// f may run several times, and should stop soon after the end of its context.
//
// Elect returns when f returns while it leads, with the error of f joined with that of
// [Lease.Unlock]; when f returns an error that is not of its context; or when ctx ends
// or the client is closed. An f that unlocks the lease resigns: after it has returned,
// Elect returns its error, or nil if the error is of its context. An error before the
// first reply of the server is returned immediately. Later, Elect retries after errors that
// may pass.
//
// A leader that crashes is succeeded when its TTL has passed. A release hands the lock
// to the caller that has waited longest, so with [Renew.MaxHold] the callers take turns.
// Of a [Quorum.Redlock], of a [Client.All] with keys in several slots of a cluster, and with
// [Wait.Poll], the last leader may get the lock again before the others.
func Elect(ctx context.Context, l Locker, f func(ctx context.Context) error) error {
	campaigning := context.WithValue(ctx, inTurn{}, true)
	for led := false; ; led = true {
		lease, err := campaign(campaigning, l, led)
		if err != nil {
			return err
		}
		if done, err := lead(ctx, lease, f); done {
			return err
		}
	}
}

// inTurn is the key of a context whose waiters do not compete: if a release can hand
// them the lock, it does, in the order in which they began to wait.
type inTurn struct{}

// campaign waits for the lock. With retry it also retries the first attempt.
func campaign(ctx context.Context, l Locker, retry bool) (*Lease, error) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		lease, err := l.Lock(ctx)
		if err == nil || !retry || errors.Is(err, ErrClosed) || !transient(err) || !sleep(ctx, backoff) {
			return lease, err
		}
	}
}

// lead runs f under a lease. It returns false if the lease ended meanwhile, but not by
// Unlock, and f did not fail for another reason.
func lead(ctx context.Context, lease *Lease, f func(ctx context.Context) error) (done bool, err error) {
	resigned := false
	defer func() {
		if unlockErr := lease.unlockWithin(ctx); done && !resigned {
			err = errors.Join(err, unlockErr)
		}
	}()
	term := lease.ContextFrom(ctx)
	err = f(term)
	resigned = lease.released()
	ofTerm := errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(term))
	switch {
	case ctx.Err() != nil && ofTerm:
		return true, fmt.Errorf("lock: lead %q: %w", lease.Key(), err)
	case ctx.Err() != nil || lease.Valid() || err != nil && !ofTerm:
		return true, err
	default:
		return resigned, nil
	}
}

// A token is "<label>~<uuid v7>". The label is for people. The uuid is unique per
// attempt and contains the time of its creation.

// maxOwner is the longest label, in bytes. Package keyspace also recognizes tokens by
// their length.
const maxOwner = 100

// newToken returns a new token for an owner. The first character of the UUID's fourth group
// tells observers whether it is that of a waiter for a fair lock.
func newToken(owner string, fair bool) (string, error) {
	if err := checkOwner(owner); err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lock: make a token: %w", err)
	}
	if id[8] |= 0xb0; fair {
		id[8] &= 0x8f
	}
	return owner + "~" + id.String(), nil
}

// newProcessToken returns a new token that tells in which process its owner waits: its
// last 12 characters are those of core.id.
func (c *core) newProcessToken(owner string, fair bool) (string, error) {
	token, err := newToken(owner, fair)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(token, processOf(token)) + processOf(c.id), nil
}

// processOf returns the last 12 characters of an id, a token, or the name of a process.
func processOf(id string) string { return id[len(id)-12:] }

// checkOwner returns an error if the label is too long.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return fmt.Errorf("%w: the owner's label has %d bytes; it must be at most %d", ErrArgument, len(owner), maxOwner)
	}
	return nil
}

// tokenOwner returns the label of a token or of the name of a process, and whether this
// package made it.
func tokenOwner(token string) (string, bool) {
	i := strings.LastIndexByte(token, '~')
	if i < 0 || uuid.Validate(token[i+1:]) != nil && uuid.Validate(uuid.Nil.String()[:24]+token[i+1:]) != nil {
		return "", false
	}
	return token[:i], true
}

// defaultOwner returns host:pid.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
