package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Locker is anything that can be locked.
type Locker interface {
	// TryLock takes the lock if it is free, in one round trip, and returns
	// [ErrHeld] at once if it is not; to learn who holds it may take another. If ctx ends before the reply, the error
	// matches ctx.Err() and whatever the request may have done is undone in the
	// background.
	TryLock(ctx context.Context) (*Lease, error)
	// Lock waits for the lock until ctx ends; the error then matches ctx.Err()
	// and, if a holder was seen, [ErrHeld]. ctx bounds the wait alone: the
	// lease does not end with it. An error before the first answer of the
	// server is returned at once; after it, Lock sits out what may pass (a
	// restart, a failover).
	Lock(ctx context.Context) (*Lease, error)
}

// base is what a lock of any kind locks.
type base struct {
	client   *Client
	key      string
	opts     Options
	protocol protocol
	argErr   error // what is wrong with the arguments, told when it is used
}

// newBase checks the options; what cannot work is told when it is used.
func (c *Client) newBase(key string, o Options, p protocol) base {
	o, err := o.withDefaults()
	if err == nil && o.Fence {
		err = c.checkCompanions(key)
	}
	if _, ok := p.(movable); err == nil && o.Replicas > 0 && !ok {
		err = fmt.Errorf("%w: this kind of lock does not wait for replicas", ErrArgument)
	}
	return base{client: c, key: key, opts: o, protocol: p, argErr: err}
}

// checkCompanions refuses a key beside which a cluster has no place for others.
func (c *core) checkCompanions(key string) error {
	if c.transport.clustered() && !canHaveCompanions(key) {
		return fmt.Errorf("%w: on a cluster the key %q, with a closing brace but no {tag}, cannot have others in its slot, as this lock needs", ErrArgument, key)
	}
	return nil
}

// Holder returns who holds the lock and for how long yet, nil if nobody does. It takes
// nothing, and reads the server's word of a moment ago: use it for messages, not for
// decisions.
func (b *base) Holder(ctx context.Context) (*HeldError, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	reply, err := b.protocol.(peeker).peek(ctx).wait(ctx)
	if err != nil {
		return nil, describe("look at", b.key, err)
	}
	held, _, err := parseAcquire(b.key, reply)
	if err != nil || held == nil || held.Token == "" {
		return nil, err
	}
	return held, nil
}

// request is one call of Lock or TryLock.
type request struct {
	// try asks the server once.
	try func(context.Context, *request) (*Lease, error)
	// shared: others may get in beside the one who succeeds, so news is for them,
	// too, and nobody takes turns who need not wait.
	shared bool
	// contended: the lock is probably held.
	contended bool
	// pollEvery is how often a waiter has to look even if there is no news; 0 = no need.
	pollEvery time.Duration

	began    time.Time
	attempts int
	held     error   // the newest refusal; nil = none yet
	current  attempt // the attempt that is under way
}

// tryLock is TryLock for all kinds.
func (b *base) tryLock(ctx context.Context, r *request) (*Lease, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	return r.try(ctx, r)
}

// lock is Lock for all kinds whose waiters poll or listen.
func (b *base) lock(ctx context.Context, r *request) (*Lease, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	end := b.countWait(ctx, r)
	return end(b.acquireWaiting(ctx, r))
}

func (b *base) acquireWaiting(ctx context.Context, r *request) (*Lease, error) {
	if b.opts.Wait.Poll > 0 {
		return b.poll(ctx, r)
	}
	key := queueKey{b.key, b.protocol.channel()}
	if r.shared && !b.client.localQueues.busy(key) {
		if lease, err := r.try(ctx, r); !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	local, err := b.client.localQueues.acquire(ctx, b.client, key)
	if err != nil {
		return nil, fmt.Errorf("lock: wait for %q: %w", b.key, err)
	}
	defer b.client.localQueues.release(local)
	return b.waitAndAcquire(ctx, r, local)
}

// withHolder adds the holder that was seen last to the error of a wait that ended with
// ctx. A request that was under way at that moment knows nothing of it.
func (r *request) withHolder(ctx context.Context, err error) error {
	if r.held == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("%w: %w", err, r.held)
}

// check refuses what must not reach the server.
func (b *base) check(ctx context.Context) error {
	switch {
	case b.argErr != nil:
		return fmt.Errorf("lock %q: %w", b.key, b.argErr)
	case b.client.isClosed():
		return fmt.Errorf("lock %q: %w", b.key, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("lock %q: %w", b.key, ctx.Err())
	}
	return nil
}

// acquire asks the server once.
func (b *base) acquire(ctx context.Context, r *request) (*hold, error) {
	return b.acquireBy(ctx, r, func(token string) future { return b.protocol.acquire(ctx, token, b.opts.TTL, 1) })
}

// acquireBy asks the server once by what send sends, with a token of its own. If
// no reply comes, the attempt is undone in the background: nobody would ever
// release it.
func (b *base) acquireBy(ctx context.Context, r *request, send func(token string) future) (*hold, error) {
	token, err := newToken(b.client.owner)
	if err != nil {
		return nil, err
	}
	r.attempts++
	sent := time.Now()
	r.current = attempt{base: b, token: token, until: sent.Add(b.opts.TTL)}
	if !b.client.tasks.beginAttempt(&r.current) {
		return nil, describe("acquire", b.key, ErrClosed)
	}
	defer b.client.tasks.endAttempt(&r.current)
	var held *HeldError
	var fence int64
	request := send(token)
	reply, err := request.wait(ctx)
	if err == nil {
		held, fence, err = parseAcquire(b.key, reply)
		sent = sinceWritten(request, sent)
	}
	if outcomeUnknown(err) {
		b.client.undo(b.protocol, token, sent.Add(b.opts.TTL), request)
	}
	if err != nil {
		return nil, b.emitFailure(token, describe("acquire", b.key, err))
	}
	if held != nil {
		r.held = held
		if r.attempts == 1 {
			b.client.emit(Event{Kind: Contended, At: time.Now(), Key: b.key, Owner: b.client.owner})
		}
		return nil, held
	}
	if sent, err = b.replicate(ctx, token, sent); err != nil {
		return nil, err
	}
	return b.startHold(r, token, fence, sent)
}

// emitFailure reports an attempt that ended in an error, which it returns.
func (b *base) emitFailure(token string, err error) error {
	b.client.emit(Event{Kind: Failed, At: time.Now(), Key: b.key, Owner: b.client.owner, Token: token, Err: err})
	return err
}

// countWait counts a call of Lock that is under way. What it returns is called with its
// outcome, which it passes on.
func (b *base) countWait(ctx context.Context, r *request) (end func(*Lease, error) (*Lease, error)) {
	b.client.waits.Add(1)
	return func(lease *Lease, err error) (*Lease, error) {
		b.client.waits.Add(-1)
		err = r.withHolder(ctx, err)
		if err != nil && b.client.tasks.begin() {
			defer b.client.tasks.done()
			now := time.Now()
			b.client.emit(Event{Kind: GaveUp, At: now, Key: b.key, Owner: b.client.owner, Attempts: r.attempts, Waited: now.Sub(r.began), Err: err})
		}
		return lease, err
	}
}

// sinceWritten returns when a request was written, to a connection that may have had
// to be made first, or sent if that is not known: the server has not done it before.
func sinceWritten(request future, sent time.Time) time.Time {
	if r, ok := request.(interface{ writtenAt() time.Time }); ok {
		return later(r.writtenAt(), sent)
	}
	return sent
}

// startHold takes possession of a lock that was granted to a request sent then. A
// grant that took too long to arrive is worth nothing any more.
func (b *base) startHold(r *request, token string, fence int64, sent time.Time) (*hold, error) {
	h := newHold(b, token, fence, sent)
	if h.pastDeadline(h.began) {
		b.client.undo(b.protocol, token, sent.Add(b.opts.TTL), nil)
		return nil, fmt.Errorf("lock: acquire %q: the answer came after %v, too late for a TTL of %v: %w", b.key, h.began.Sub(sent), b.opts.TTL, ErrLost)
	}
	b.client.renewer.add(h)
	if b.client.isClosed() { // meanwhile: Close may have missed this one
		h.finish(ErrClosed)
		b.client.undo(b.protocol, token, sent.Add(b.opts.TTL), nil)
		return nil, describe("acquire", b.key, ErrClosed)
	}
	b.client.emit(Event{Kind: Acquired, At: h.began, Key: b.key, Owner: b.client.owner, Token: token,
		Attempts: r.attempts, Waited: h.began.Sub(r.began)})
	return h, nil
}

// poll tries again and again, as Wait says.
func (b *base) poll(ctx context.Context, r *request) (*Lease, error) {
	for {
		lease, err := r.try(ctx, r)
		if !errors.Is(err, ErrHeld) && !(r.held != nil && transient(err)) {
			return lease, err
		}
		if b.opts.Wait.MaxTries > 0 && r.attempts >= b.opts.Wait.MaxTries {
			return nil, err
		}
		b.client.sleep(ctx, b.opts.Wait.pause())
		if cause := stopCause(ctx, b.client); cause != nil {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", b.key, err, cause)
		}
	}
}

// undoPause is the time between two tries to undo at first; each is twice the one
// before, up to maxUndoPause.
const (
	undoPause    = 10 * time.Millisecond
	maxUndoPause = time.Second
)

// undo takes back an acquire whose outcome nobody knows, until it is answered
// or the key would have expired by itself. It is on its way, behind the acquire,
// when undo returns; the rest happens in the background.
//
// It asks twice: on the connection of the acquire the first answer settles it,
// but after a broken connection the undo may have overtaken an acquire that
// still sat in the server's buffers. A cluster's client takes an acquire to another
// node that the first one names, and undos overtake it on the way: only those count
// that are sent when the acquire, if it is given, is over.
func (c *core) undo(p protocol, token string, until time.Time, acquire future) {
	if own, ok := p.(undoer); ok {
		own.undo()
		return
	}
	first := p.release(c.alive, token, 0)
	c.tasks.spawn(func() {
		ctx, cancel := context.WithDeadline(c.alive, until)
		defer cancel()
		release := first
		if a, ok := acquire.(interface{ waitLast(context.Context) }); ok && c.transport.clustered() {
			a.waitLast(ctx)
			release = p.release(c.alive, token, 0)
		}
		pause := undoPause
		for answers := 0; ; release = p.release(c.alive, token, 0) {
			if _, err := release.wait(ctx); err == nil || !transient(err) {
				answers++
			}
			if answers == 2 || !sleep(ctx, randomBetween(pause/2, pause)) {
				c.emit(Event{Kind: Undone, At: time.Now(), Key: p.lockKey(), Token: token, Err: ctx.Err()})
				return
			}
			pause = min(2*pause, maxUndoPause)
		}
	})
}
