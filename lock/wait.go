package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How waiting works. The callers of Lock through one client stand in a turn per
// key, and only the first of them talks to the server. The first ones of all
// identities on a transport stand in a line per key. A line listens on the
// lock's channel, and what it hears (a release, a reconnect, the holder's
// deadline) wakes its front alone: a message to a process makes one attempt,
// not a herd. Order is kept inside a process only.

// foreignPollInterval is how often to look at a lock whose holder will not tell when it
// is done: one of another library, or any while we cannot listen.
const foreignPollInterval = 250 * time.Millisecond

// maxPollInterval is how often to look, more or less, at a lock whose holder will tell: the
// key may vanish without a word (DEL, FLUSHALL, eviction).
const maxPollInterval = 5 * time.Second

// While the server cannot be reached, it is tried this often at first and at
// last.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// waitAndAcquire tries once, and stands in line after that until the lock is ours or ctx
// ends.
func (b *base) waitAndAcquire(ctx context.Context, r *request, local *localQueue) (*Lease, error) {
	queue, w := local.reuseSubscription() // first, so that no news is missed between the attempt and the queue
	r.contended = queue != nil
	lease, err := r.try(ctx, r)
	if queue == nil && errors.Is(err, ErrHeld) {
		queue, w = local.subscribe(&b.client.notifier, b.protocol.channel())
	}
	if queue == nil {
		return lease, err
	}
	held, backoff := err, minBackoff
	for waited := false; err != nil && (errors.Is(err, ErrHeld) || waited && transient(err)); waited = true {
		if errors.Is(err, ErrHeld) {
			held, backoff = err, minBackoff
		}
		queue.wakeAfter(r.capPoll(pollInterval(err, queue.subscribed(), backoff)))
		if err = b.waitForWake(ctx, w.wakeup); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", b.key, held, err)
			break
		}
		lease, err = r.try(ctx, r)
		backoff = min(2*backoff, maxBackoff)
	}
	err = b.waitError(ctx, held, err)
	if err == nil {
		queue.wakeAfter(r.capPoll(pollInterval(&HeldError{Token: lease.Token(), TTL: b.opts.TTL}, queue.subscribed(), 0)))
	}
	queue.leave(w, err == nil && !r.shared)
	return lease, err
}

// waitForWake waits for news. It prefers to end.
func (b *base) waitForWake(ctx context.Context, wakeup chan struct{}) error {
	closing, done := b.client.closing()
	defer done()
	select {
	case <-wakeup:
	case <-ctx.Done():
	case <-closing.Done():
	}
	return stopCause(ctx, b.client)
}

// waitError returns what a last try that ended with err, or was cut short by the
// end of ctx, means to somebody who waited for a holder.
func (b *base) waitError(ctx context.Context, held, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(held, ErrHeld) || errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("lock: wait for %q: %w: %w", b.key, held, err)
}

// capPoll returns a pause that is not too long for the request.
func (r *request) capPoll(pause time.Duration) time.Duration {
	if r.pollEvery > 0 {
		return min(pause, r.pollEvery)
	}
	return pause
}

// pollInterval returns how long to leave the server alone after an attempt that ended
// with err, unless there is news. A holder of ours announces its release, so
// there is little to see before its lease is over.
func pollInterval(err error, subscribed bool, backoff time.Duration) time.Duration {
	var held *HeldError
	if !errors.As(err, &held) {
		return backoff
	}
	_, ours := tokenOwner(held.Token)
	switch {
	case held.TTL < 0:
		return foreignPollInterval
	case ours && subscribed:
		return min(held.TTL+time.Millisecond, randomBetween(maxPollInterval/2, maxPollInterval*3/2))
	default:
		return min(held.TTL+time.Millisecond, foreignPollInterval)
	}
}
