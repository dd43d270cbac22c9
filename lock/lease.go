package lock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Lease is a lock that is ours for a time. It is safe for concurrent use, also
// by goroutines other than the one that acquired it.
type Lease struct {
	client *Client
	key    string
	token  string
	opts   Options
	began  time.Time // when the reply came
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	sent     time.Time     // before the request that the deadline counts from
	ttl      time.Duration // granted by that request
	renewals int
	renewAt  time.Time     // zero = no more
	renewing chan struct{} // closed when the renewal in flight is over; nil = none
	cause    error         // why it ended; nil while it is ours

	slot int // place in the keeper's heap, −1 = none; the keeper's
	due  time.Time
}

func newLease(m *Mutex, token string, sent time.Time) *Lease {
	l := &Lease{client: m.client, key: m.key, token: token, opts: m.opts, began: time.Now(),
		sent: sent, ttl: m.opts.TTL, slot: -1}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.renewAt = l.nextRenewal(sent)
	return l
}

// Key returns the name of the lock.
func (l *Lease) Key() string { return l.key }

// Token returns what the server stores as the holder. Whoever knows it can
// release the lock.
func (l *Lease) Token() string { return l.token }

// Deadline returns when the lease ends unless it is renewed, on this process'
// clock. It lies before the moment at which the key expires on the server.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline()
}

// Valid reports whether the lock is ours at this moment, by the clock alone:
// no I/O, no waiting for a timer. Ask it right before doing what the lock
// protects.
func (l *Lease) Valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause == nil && !l.over(time.Now())
}

// Context ends when the lease does. [context.Cause] then tells why: ErrReleased,
// ErrLost, ErrMaxHold or ErrClosed. A lost lease never comes back to life.
func (l *Lease) Context() context.Context { return l.ctx }

// Extend gives the lease ttl from now, whatever was left of it. [ErrLost] means
// that the lock is no longer ours; nothing was changed on the server. If ctx
// ends before the reply, the lease keeps the earlier of the two deadlines.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := checkTTL(ttl); err != nil {
		return fmt.Errorf("extend lock %q: %w", l.key, err)
	}
	sent, err := l.beginExtend(ttl)
	if err != nil {
		return fmt.Errorf("extend lock %q: %w", l.key, err)
	}
	reply, err := mutexExtend.run(ctx, l.client.wire, l.key, l.token, ttl.Milliseconds())
	if err != nil {
		return describe("extend", l.key, err)
	}
	if err := l.extended(sent, ttl, reply); err != nil {
		return fmt.Errorf("extend lock %q: %w", l.key, err)
	}
	return nil
}

// beginExtend makes sure that the deadline is never later than what the server
// may be told next.
func (l *Lease) beginExtend(ttl time.Duration) (sent time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if err := l.ended(now); err != nil {
		return now, err
	}
	if now.Add(usable(ttl)).Before(l.deadline()) {
		l.sent, l.ttl = now, ttl
		l.client.keeper.move(l)
	}
	return now, nil
}

// extended takes in the reply of mutex_extend to a request sent then.
func (l *Lease) extended(sent time.Time, ttl time.Duration, reply any) error {
	if reply != int64(1) {
		return l.lose()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if err := l.ended(now); err != nil {
		// The server revived what is already over here: take it back.
		l.client.undo(l.key, l.token, now.Add(ttl))
		return err
	}
	l.sent, l.ttl = sent, ttl
	l.renewAt = l.nextRenewal(sent)
	l.client.keeper.move(l)
	return nil
}

// Unlock gives the lock back and ends the lease's context with [ErrReleased].
// A lease that is over returns why (ErrLost, ErrReleased, …) and touches
// nothing. When Unlock returns nil, no renewal is in flight and none follows.
// If ctx ends before the reply, also if it ended long ago, the release goes on
// in the background and the error matches ctx.Err().
func (l *Lease) Unlock(ctx context.Context) error {
	renewing, err := l.beginUnlock()
	if err != nil {
		return fmt.Errorf("unlock %q: %w", l.key, err)
	}
	reply, err := mutexRelease.run(ctx, l.client.wire, l.key, l.token, name(l.key, "free"))
	if outcomeUnknown(err) || neverSent(err) {
		l.client.undo(l.key, l.token, time.Now().Add(l.ttl))
	}
	if err != nil {
		return describe("unlock", l.key, err)
	}
	if renewing != nil {
		<-renewing // it travelled ahead of the release, so its reply is here too
	}
	if reply != int64(1) {
		l.report(Lost)
		return fmt.Errorf("unlock %q: %w", l.key, ErrLost)
	}
	l.report(Released)
	return nil
}

// beginUnlock ends the lease on this side.
func (l *Lease) beginUnlock() (renewing chan struct{}, err error) {
	l.mu.Lock()
	if err = l.ended(time.Now()); err == nil {
		l.cause = ErrReleased
	}
	renewing = l.renewing
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.client.keeper.remove(l)
	l.cancel(ErrReleased)
	return renewing, nil
}

// finish ends the lease for a reason other than its release. It returns false
// if the lease was over already.
func (l *Lease) finish(cause error) bool {
	l.mu.Lock()
	first := l.cause == nil
	if first {
		l.cause = cause
	}
	l.mu.Unlock()
	if first {
		l.client.keeper.remove(l)
		l.cancel(cause)
	}
	return first
}

// lose ends a lease whose token the server no longer knows, and returns why it
// is over.
func (l *Lease) lose() error {
	if l.finish(ErrLost) {
		l.report(Lost)
	}
	return context.Cause(l.ctx)
}

// report tells the observer how the lease ended.
func (l *Lease) report(kind EventKind) {
	now := time.Now()
	l.client.tell(Event{Kind: kind, At: now, Key: l.key, Owner: l.client.owner, Token: l.token, Held: now.Sub(l.began)})
}

// What follows needs l.mu.

// usable is the part of a TTL that a holder may rely on: the rest allows for a
// server whose clock runs up to 1 % fast, and for its expiring by whole
// milliseconds.
func usable(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// deadline is the end of the lease: its time, or its longest hold.
func (l *Lease) deadline() time.Time {
	d := l.sent.Add(usable(l.ttl))
	if limit := l.opts.Renew.MaxHold; limit > 0 && l.began.Add(limit).Before(d) {
		return l.began.Add(limit)
	}
	return d
}

// over reports whether the deadline has passed at now, by the monotonic or by
// the wall clock: the former stands still while the machine is suspended.
func (l *Lease) over(now time.Time) bool {
	d := l.deadline()
	return !now.Before(d) || !now.Round(0).Before(d.Round(0))
}

// ended returns why the lease is over at now, nil if it is not.
func (l *Lease) ended(now time.Time) error {
	if l.cause == nil && l.over(now) {
		return l.overdue()
	}
	return l.cause
}

// overdue returns what it means that the deadline has passed.
func (l *Lease) overdue() error {
	r := l.opts.Renew
	if r.Max > 0 && l.renewals >= r.Max || r.MaxHold > 0 && time.Since(l.began) >= r.MaxHold {
		return ErrMaxHold
	}
	return ErrLost
}
