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
func (c *Client) newBase(key string, o Options, form protocol) base {
	o, err := o.withDefaults()
	if err == nil && o.Fence {
		err = c.checkCompanions(key)
	}
	if _, ok := form.(movable); err == nil && o.Replicas > 0 && !ok {
		err = fmt.Errorf("%w: this kind of lock does not wait for replicas", ErrArgument)
	}
	return base{client: c, key: key, opts: o, protocol: form, argErr: err}
}

// checkCompanions refuses a key beside which a cluster has no place for others.
func (t *core) checkCompanions(key string) error {
	if t.transport.clustered() && !canHaveCompanions(key) {
		return fmt.Errorf("%w: on a cluster the key %q, with a closing brace but no {tag}, cannot have others in its slot, as this lock needs", ErrArgument, key)
	}
	return nil
}

// Holder returns who holds the lock and for how long yet, nil if nobody does. It takes
// nothing, and reads the server's word of a moment ago: use it for messages, not for
// decisions.
func (t *base) Holder(ctx context.Context) (*HeldError, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	reply, err := t.protocol.(peeker).peek(ctx).wait(ctx)
	if err != nil {
		return nil, describe("look at", t.key, err)
	}
	held, _, err := parseAcquire(t.key, reply)
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
func (t *base) tryLock(ctx context.Context, r *request) (*Lease, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	return r.try(ctx, r)
}

// lock is Lock for all kinds whose waiters poll or listen.
func (t *base) lock(ctx context.Context, r *request) (*Lease, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	over := t.countWait(ctx, r)
	return over(t.acquireWaiting(ctx, r))
}

func (t *base) acquireWaiting(ctx context.Context, r *request) (*Lease, error) {
	if t.opts.Wait.Poll > 0 {
		return t.poll(ctx, r)
	}
	spot := queueKey{t.key, t.protocol.channel()}
	if r.shared && !t.client.localQueues.busy(spot) {
		if lease, err := r.try(ctx, r); !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	turn, err := t.client.localQueues.acquire(ctx, t.client, spot)
	if err != nil {
		return nil, fmt.Errorf("lock: wait for %q: %w", t.key, err)
	}
	defer t.client.localQueues.release(turn)
	return t.waitAndAcquire(ctx, r, turn)
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
func (t *base) check(ctx context.Context) error {
	switch {
	case t.argErr != nil:
		return fmt.Errorf("lock %q: %w", t.key, t.argErr)
	case t.client.isClosed():
		return fmt.Errorf("lock %q: %w", t.key, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("lock %q: %w", t.key, ctx.Err())
	}
	return nil
}

// acquire asks the server once.
func (t *base) acquire(ctx context.Context, r *request) (*hold, error) {
	return t.acquireBy(ctx, r, func(token string) future { return t.protocol.acquire(ctx, token, t.opts.TTL, 1) })
}

// acquireBy asks the server once by what send sends, with a token of its own. If
// no reply comes, the attempt is undone in the background: nobody would ever
// release it.
func (t *base) acquireBy(ctx context.Context, r *request, send func(token string) future) (*hold, error) {
	token, err := newToken(t.client.owner)
	if err != nil {
		return nil, err
	}
	r.attempts++
	sent := time.Now()
	r.current = attempt{base: t, token: token, until: sent.Add(t.opts.TTL)}
	if !t.client.tasks.beginAttempt(&r.current) {
		return nil, describe("acquire", t.key, ErrClosed)
	}
	defer t.client.tasks.endAttempt(&r.current)
	var held *HeldError
	var fence int64
	request := send(token)
	reply, err := request.wait(ctx)
	if err == nil {
		held, fence, err = parseAcquire(t.key, reply)
		sent = sinceWritten(request, sent)
	}
	if outcomeUnknown(err) {
		t.client.undo(t.protocol, token, sent.Add(t.opts.TTL), request)
	}
	if err != nil {
		return nil, t.emitFailure(token, describe("acquire", t.key, err))
	}
	if held != nil {
		r.held = held
		if r.attempts == 1 {
			t.client.emit(Event{Kind: Contended, At: time.Now(), Key: t.key, Owner: t.client.owner})
		}
		return nil, held
	}
	if sent, err = t.replicate(ctx, token, sent); err != nil {
		return nil, err
	}
	return t.startHold(r, token, fence, sent)
}

// emitFailure reports an attempt that ended in an error, which it returns.
func (t *base) emitFailure(token string, err error) error {
	t.client.emit(Event{Kind: Failed, At: time.Now(), Key: t.key, Owner: t.client.owner, Token: token, Err: err})
	return err
}

// countWait counts a call of Lock that is under way. What it returns is called with its
// outcome, which it passes on.
func (t *base) countWait(ctx context.Context, r *request) (over func(*Lease, error) (*Lease, error)) {
	t.client.waits.Add(1)
	return func(lease *Lease, err error) (*Lease, error) {
		t.client.waits.Add(-1)
		err = r.withHolder(ctx, err)
		if err != nil && t.client.tasks.begin() {
			defer t.client.tasks.done()
			now := time.Now()
			t.client.emit(Event{Kind: GaveUp, At: now, Key: t.key, Owner: t.client.owner, Attempts: r.attempts, Waited: now.Sub(r.began), Err: err})
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
func (t *base) startHold(r *request, token string, fence int64, sent time.Time) (*hold, error) {
	h := newHold(t, token, fence, sent)
	if h.pastDeadline(h.began) {
		t.client.undo(t.protocol, token, sent.Add(t.opts.TTL), nil)
		return nil, fmt.Errorf("lock: acquire %q: the answer came after %v, too late for a TTL of %v: %w", t.key, h.began.Sub(sent), t.opts.TTL, ErrLost)
	}
	t.client.renewer.add(h)
	if t.client.isClosed() { // meanwhile: Close may have missed this one
		h.finish(ErrClosed)
		t.client.undo(t.protocol, token, sent.Add(t.opts.TTL), nil)
		return nil, describe("acquire", t.key, ErrClosed)
	}
	t.client.emit(Event{Kind: Acquired, At: h.began, Key: t.key, Owner: t.client.owner, Token: token,
		Attempts: r.attempts, Waited: h.began.Sub(r.began)})
	return h, nil
}

// poll tries again and again, as Wait says.
func (t *base) poll(ctx context.Context, r *request) (*Lease, error) {
	for {
		lease, err := r.try(ctx, r)
		if !errors.Is(err, ErrHeld) && !(r.held != nil && transient(err)) {
			return lease, err
		}
		if t.opts.Wait.MaxTries > 0 && r.attempts >= t.opts.Wait.MaxTries {
			return nil, err
		}
		t.client.sleep(ctx, t.opts.Wait.pause())
		if end := stopCause(ctx, t.client); end != nil {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", t.key, err, end)
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
func (t *core) undo(f protocol, token string, until time.Time, acquire future) {
	if own, ok := f.(undoer); ok {
		own.undo()
		return
	}
	first := f.release(t.alive, token, 0)
	t.tasks.spawn(func() {
		ctx, cancel := context.WithDeadline(t.alive, until)
		defer cancel()
		p := first
		if a, ok := acquire.(interface{ waitLast(context.Context) }); ok && t.transport.clustered() {
			a.waitLast(ctx)
			p = f.release(t.alive, token, 0)
		}
		pause := undoPause
		for answers := 0; ; p = f.release(t.alive, token, 0) {
			if _, err := p.wait(ctx); err == nil || !transient(err) {
				answers++
			}
			if answers == 2 || !sleep(ctx, randomBetween(pause/2, pause)) {
				t.emit(Event{Kind: Undone, At: time.Now(), Key: f.lockKey(), Token: token, Err: ctx.Err()})
				return
			}
			pause = min(2*pause, maxUndoPause)
		}
	})
}
