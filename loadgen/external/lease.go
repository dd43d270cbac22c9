package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a lock that a client holds. All methods are safe for concurrent use.
type Lease struct {
	process *Process
	lock    int64 // ID of its request
	token   string
	fence   int64
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time // at most the leeway too early
	latest   time.Time // at most as long too late as the reply was under way
}

// newLease returns the lease of a successful lock.
func newLease(p *Process, c *call, a answer) *Lease {
	valid := milliseconds(*a.Valid)
	l := &Lease{process: p, lock: c.ID, token: a.Token, fence: a.Fence, deadline: a.at.Add(valid - min(p.options.leeway(valid), a.at.Sub(c.sent))), latest: a.at.Add(valid)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// leeway is how long a reply may be under way. Its valid_ms begins when the client
// writes it, which is earlier than the moment at which it is read: without the leeway a
// lease could end later here than for the client, and overlaps would be counted that did
// not happen.
func (o Options) leeway(valid time.Duration) time.Duration {
	return cmp.Or(o.Leeway, max(min(valid/4, 100*time.Millisecond), 0))
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Token returns the token of the lock.
func (l *Lease) Token() string { return l.token }

// Fence returns the fence of the lock, 0 if it has none.
func (l *Lease) Fence() int64 { return l.fence }

// Context ends when the client reports that it has lost the lock, with ErrLost as its
// cause, and when the client ends. It does not end at the deadline.
func (l *Lease) Context() context.Context { return l.ctx }

// Deadline returns the end of the lease that the client has reported last, too early by
// Options.Leeway at most, and never too late unless a reply is under way for longer.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Latest returns the latest end of the lease, by what the client has reported: the lease is
// over then, at the latest. Work before it is not certainly late.
func (l *Lease) Latest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// Valid reports whether the client is certain to hold the lock, by what it has reported.
func (l *Lease) Valid() bool { return l.ctx.Err() == nil && time.Now().Before(l.Deadline()) }

// Lost reports whether the client has reported that it has lost the lock.
func (l *Lease) Lost() bool { return errors.Is(context.Cause(l.ctx), ErrLost) }

// prolong sets a later deadline, and a later latest end.
func (l *Lease) prolong(deadline, latest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deadline.After(l.deadline) {
		l.deadline = deadline
	}
	if latest.After(l.latest) {
		l.latest = latest
	}
}

// end ends the lease. The deadline stays: what the lease was until now is not known.
func (l *Lease) end(reason error) { l.cancel(reason) }

// Terms are what a lock is asked for. The hello of the client must offer the kind that
// Read, Permits and more than one key need.
type Terms struct {
	Keys    []string // at least one; several are locked together
	TTL     time.Duration
	Wait    time.Duration // how long the client may wait for the lock
	Read    bool          // share the lock with other readers
	Permits int           // how many clients may hold the lock at once; 0 = 1
	// Cancel is closed to make the client stop waiting; nil: never. The client answers
	// then, and may have got the lock.
	Cancel <-chan struct{}
}

// request returns the request for the lock.
func (t Terms) request() Request {
	wait := t.Wait.Milliseconds()
	r := Request{Op: opLock, Key: t.Keys[0], TTL: t.TTL.Milliseconds(), Wait: &wait, Permits: t.Permits, cancel: t.Cancel}
	if t.Read {
		r.Mode = ModeRead
	}
	if len(t.Keys) > 1 {
		r.Keys = t.Keys
	}
	return r
}

// Lock asks the client for a lock. If the client does not get it, the error is ErrHeld.
// If ctx ends first, Lock returns its error, and releases the lock if the client gets it
// later.
func (p *Process) Lock(ctx context.Context, t Terms) (*Lease, error) {
	a, err := p.do(ctx, t.request(), t.Wait)
	switch {
	case err != nil:
		return nil, err
	case a.OK:
		return a.lease, nil
	case a.Held:
		return nil, ErrHeld
	}
	return nil, a.failure("lock")
}

// Unlock releases the lock. It returns ErrLost if the client did not hold the lock any
// more.
func (l *Lease) Unlock(ctx context.Context) error {
	a, err := l.process.do(ctx, Request{Op: opUnlock, Token: l.token, Lock: l.lock}, 0)
	if err == nil {
		err = a.result("unlock")
	}
	l.process.mu.Lock()
	l.process.forget(l)
	l.process.mu.Unlock()
	l.end(context.Canceled)
	return err
}

// Extend asks the client for a new deadline. It returns ErrLost if the client did not
// hold the lock any more.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	a, err := l.process.do(ctx, Request{Op: opExtend, Token: l.token, Lock: l.lock, TTL: ttl.Milliseconds()}, 0)
	if err == nil {
		err = a.result("extend")
	}
	if err == nil && a.Valid != nil {
		l.prolong(sent.Add(milliseconds(*a.Valid)), a.at.Add(milliseconds(*a.Valid)))
	}
	return err
}

// result returns the error of a reply to unlock or extend.
func (a answer) result(op string) error {
	switch {
	case a.OK:
		return nil
	case a.Lost:
		return ErrLost
	}
	return a.failure(op)
}

// failure returns the error that the client reports.
func (a answer) failure(op string) error {
	if a.Error == "" {
		return fmt.Errorf("%s failed, and the client does not say why", op)
	}
	return fmt.Errorf("%s: %s", op, printable(a.Error[:min(len(a.Error), 10*longestQuote)]))
}
