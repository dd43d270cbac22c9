package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How waiting works. Goroutines that call Lock through one client wait in a localQueue
// per key. Only the first of them talks to the server. The first ones of all clients
// of a core wait in a waitQueue per key. The waitQueue subscribes to the channel of
// the lock. A message, a reconnect and the deadline of the holder wake only the first
// waiter, so that a release causes one attempt per process. The order holds within a
// process only.

// foreignPollInterval is the pause between attempts if the holder's release may send
// no message: the holder uses another library, or the subscription is not confirmed.
const foreignPollInterval = 250 * time.Millisecond

// maxPollInterval is the average pause between attempts if the holder's release sends
// a message. The key may also vanish without one (DEL, FLUSHALL, eviction).
const maxPollInterval = 5 * time.Second

// minBackoff and maxBackoff are the first and the longest pause between attempts while
// the server cannot be reached.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// waitAndAcquire tries once. If the lock is held, it waits until it has acquired the
// lock or ctx ends.
func (b *base) waitAndAcquire(ctx context.Context, r *request, local *localQueue) (*Lease, error) {
	queue, w := local.reuseSubscription() // before the attempt: no message is missed in between
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

// waitForWake waits until wakeup is ready, and returns nil. It returns an error if ctx
// has ended or the client was closed, even if wakeup is ready.
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

// waitError returns the error of a wait: err, the result of its last attempt. If ctx
// ended during that attempt, err does not name the holder, and waitError adds held.
func (b *base) waitError(ctx context.Context, held, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(held, ErrHeld) || errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("lock: wait for %q: %w: %w", b.key, held, err)
}

// capPoll returns pause, at most pollEvery.
func (r *request) capPoll(pause time.Duration) time.Duration {
	if r.pollEvery > 0 {
		return min(pause, r.pollEvery)
	}
	return pause
}

// pollInterval returns the pause after an attempt that ended with err. A message may
// end it earlier. A holder of this package publishes its release, so a subscribed
// waiter waits for the end of the holder's TTL, at most 2.5 to 7.5 s at random.
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
