package lock

import (
	"context"
	"errors"
	"fmt"
)

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
