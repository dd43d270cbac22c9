package lock

import (
	"context"
	"errors"
	"time"
)

// Elect elects a leader among the callers that use the same lock, and runs f while this
// caller leads. It waits for l as [Locker].Lock does, and unlocks l when f returns, also
// if f panics. The context of f ends with ctx or with the lease, whichever is first: by
// the local deadline, so before another caller can lead. [LeaseFrom] returns the lease
// in f; its fence, if the lock has one, is larger than those of all earlier leaders.
//
// If the lease is lost or reaches its longest hold while f runs, Elect waits until f
// returns, and then for l again. So f may run several times, and should stop soon after
// the end of its context.
//
// Elect returns when f returns while it leads, with the error of f joined with that of
// [Lease.Unlock]; when f has unlocked the lease itself, which is a resignation; when f
// returns an error that is not of its context; or when ctx ends or the client is closed. An
// error before the first reply of the server is returned at once. Later, Elect retries after
// errors that may pass.
//
// A leader that crashes is succeeded when its TTL has passed. With [Renew.MaxHold], the
// callers take turns: a leader whose term has reached this limit waits 100 ms before it
// asks again, in which a caller that waits becomes the leader.
func Elect(ctx context.Context, l Locker, f func(ctx context.Context) error) error {
	for led := false; ; led = true {
		lease, err := campaign(ctx, l, led)
		if err != nil {
			return err
		}
		if done, err := lead(ctx, lease, f); done {
			return err
		}
		if errors.Is(context.Cause(lease.Context()), ErrMaxHold) {
			sleep(ctx, stepBack)
		}
	}
}

// stepBack is how long a leader waits after its longest hold. A waiting caller needs a
// round trip to get the lock.
const stepBack = 100 * time.Millisecond

// campaign waits for the lock. With retry it also retries the first attempt.
func campaign(ctx context.Context, l Locker, retry bool) (*Lease, error) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		lease, err := l.Lock(ctx)
		if err == nil || !retry || errors.Is(err, ErrClosed) || !transient(err) || !sleep(ctx, backoff) {
			return lease, err
		}
	}
}

// lead runs f under a lease. It returns false if f did not unlock the lease, which
// ended meanwhile, and f did not fail for another reason.
func lead(ctx context.Context, lease *Lease, f func(ctx context.Context) error) (done bool, err error) {
	resigned := false
	defer func() {
		if unlockErr := lease.unlockWithin(ctx); done && !resigned {
			err = errors.Join(err, unlockErr)
		}
	}()
	term := lease.ContextFrom(ctx)
	err = f(term)
	if ctx.Err() != nil || lease.Valid() {
		return true, err
	}
	cause := context.Cause(lease.Context())
	resigned = errors.Is(cause, ErrReleased)
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
		return true, err
	}
	return resigned, nil
}
