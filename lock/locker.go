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

// target is what a lock of any kind locks.
type target struct {
	client *Client
	key    string
	opts   Options
	form   form
	bad    error // what is wrong with the arguments, told when it is used
}

// newTarget checks the options; what cannot work is told when it is used.
func (c *Client) newTarget(key string, o Options, form form) target {
	o, err := o.withDefaults()
	if err == nil && o.Fence {
		err = c.checkCompanions(key)
	}
	if _, ok := form.(portable); err == nil && o.Replicas > 0 && !ok {
		err = fmt.Errorf("%w: this kind of lock does not wait for replicas", ErrArgument)
	}
	return target{client: c, key: key, opts: o, form: form, bad: err}
}

// checkCompanions refuses a key beside which a cluster has no place for others.
func (t *transport) checkCompanions(key string) error {
	if t.wire.clustered() && !companionable(key) {
		return fmt.Errorf("%w: on a cluster the key %q, with a closing brace but no {tag}, cannot have others in its slot, as this lock needs", ErrArgument, key)
	}
	return nil
}

// Holder returns who holds the lock and for how long yet, nil if nobody does. It takes
// nothing, and reads the server's word of a moment ago: use it for messages, not for
// decisions.
func (t *target) Holder(ctx context.Context) (*HeldError, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	reply, err := t.form.(looker).look(ctx).wait(ctx)
	if err != nil {
		return nil, describe("look at", t.key, err)
	}
	held, _, err := heldBy(t.key, reply)
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
	// glance is how often a waiter has to look even if there is no news; 0 = no need.
	glance time.Duration

	began    time.Time
	attempts int
	held     error  // the newest refusal; nil = none yet
	flight   flight // the attempt that is under way
}

// tryLock is TryLock for all kinds.
func (t *target) tryLock(ctx context.Context, r *request) (*Lease, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	return r.try(ctx, r)
}

// lock is Lock for all kinds whose waiters poll or listen.
func (t *target) lock(ctx context.Context, r *request) (*Lease, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	over := t.waiting(ctx, r)
	return over(t.await(ctx, r))
}

func (t *target) await(ctx context.Context, r *request) (*Lease, error) {
	if t.opts.Wait.Poll > 0 {
		return t.poll(ctx, r)
	}
	spot := spot{t.key, t.form.channel()}
	if r.shared && !t.client.turns.busy(spot) {
		if lease, err := r.try(ctx, r); !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	turn, err := t.client.turns.take(ctx, t.client, spot)
	if err != nil {
		return nil, fmt.Errorf("lock: wait for %q: %w", t.key, err)
	}
	defer t.client.turns.give(turn)
	return t.stand(ctx, r, turn)
}

// told adds the holder that was seen last to the error of a wait that ended with
// ctx. A request that was under way at that moment knows nothing of it.
func (r *request) told(ctx context.Context, err error) error {
	if r.held == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("%w: %w", err, r.held)
}

// ready refuses what must not reach the server.
func (t *target) ready(ctx context.Context) error {
	switch {
	case t.bad != nil:
		return fmt.Errorf("lock %q: %w", t.key, t.bad)
	case t.client.isClosed():
		return fmt.Errorf("lock %q: %w", t.key, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("lock %q: %w", t.key, ctx.Err())
	}
	return nil
}

// acquire asks the server once.
func (t *target) acquire(ctx context.Context, r *request) (*hold, error) {
	return t.acquireBy(ctx, r, func(token string) pending { return t.form.acquire(ctx, token, t.opts.TTL, 1) })
}

// acquireBy asks the server once by what send sends, with a token of its own. If
// no reply comes, the attempt is undone in the background: nobody would ever
// release it.
func (t *target) acquireBy(ctx context.Context, r *request, send func(token string) pending) (*hold, error) {
	token, err := newToken(t.client.owner)
	if err != nil {
		return nil, err
	}
	r.attempts++
	sent := time.Now()
	r.flight = flight{target: t, token: token, until: sent.Add(t.opts.TTL)}
	if !t.client.tasks.takeOff(&r.flight) {
		return nil, describe("acquire", t.key, ErrClosed)
	}
	defer t.client.tasks.land(&r.flight)
	var held *HeldError
	var fence int64
	request := send(token)
	reply, err := request.wait(ctx)
	if err == nil {
		held, fence, err = heldBy(t.key, reply)
		sent = sinceWritten(request, sent)
	}
	if outcomeUnknown(err) {
		t.client.undo(t.form, token, sent.Add(t.opts.TTL), request)
	}
	if err != nil {
		return nil, t.failed(token, describe("acquire", t.key, err))
	}
	if held != nil {
		r.held = held
		if r.attempts == 1 {
			t.client.tell(Event{Kind: Contended, At: time.Now(), Key: t.key, Owner: t.client.owner})
		}
		return nil, held
	}
	if sent, err = t.replicate(ctx, token, sent); err != nil {
		return nil, err
	}
	return t.begin(r, token, fence, sent)
}

// failed reports an attempt that ended in an error, which it returns.
func (t *target) failed(token string, err error) error {
	t.client.tell(Event{Kind: Failed, At: time.Now(), Key: t.key, Owner: t.client.owner, Token: token, Err: err})
	return err
}

// waiting counts a call of Lock that is under way. What it returns is called with its
// outcome, which it passes on.
func (t *target) waiting(ctx context.Context, r *request) (over func(*Lease, error) (*Lease, error)) {
	t.client.waits.Add(1)
	return func(lease *Lease, err error) (*Lease, error) {
		t.client.waits.Add(-1)
		err = r.told(ctx, err)
		if err != nil && t.client.tasks.begin() {
			defer t.client.tasks.done()
			now := time.Now()
			t.client.tell(Event{Kind: GaveUp, At: now, Key: t.key, Owner: t.client.owner, Attempts: r.attempts, Waited: now.Sub(r.began), Err: err})
		}
		return lease, err
	}
}

// sinceWritten returns when a request was written, to a connection that may have had
// to be made first, or sent if that is not known: the server has not done it before.
func sinceWritten(request pending, sent time.Time) time.Time {
	if r, ok := request.(interface{ writtenAt() time.Time }); ok {
		return later(r.writtenAt(), sent)
	}
	return sent
}

// begin takes possession of a lock that was granted to a request sent then. A
// grant that took too long to arrive is worth nothing any more.
func (t *target) begin(r *request, token string, fence int64, sent time.Time) (*hold, error) {
	h := newHold(t, token, fence, sent)
	if h.over(h.began) {
		t.client.undo(t.form, token, sent.Add(t.opts.TTL), nil)
		return nil, fmt.Errorf("lock: acquire %q: the answer came after %v, too late for a TTL of %v: %w", t.key, h.began.Sub(sent), t.opts.TTL, ErrLost)
	}
	t.client.keeper.add(h)
	if t.client.isClosed() { // meanwhile: Close may have missed this one
		h.finish(ErrClosed)
		t.client.undo(t.form, token, sent.Add(t.opts.TTL), nil)
		return nil, describe("acquire", t.key, ErrClosed)
	}
	t.client.tell(Event{Kind: Acquired, At: h.began, Key: t.key, Owner: t.client.owner, Token: token,
		Attempts: r.attempts, Waited: h.began.Sub(r.began)})
	return h, nil
}

// poll tries again and again, as Wait says.
func (t *target) poll(ctx context.Context, r *request) (*Lease, error) {
	for {
		lease, err := r.try(ctx, r)
		if !errors.Is(err, ErrHeld) && !(r.held != nil && transient(err)) {
			return lease, err
		}
		if t.opts.Wait.MaxTries > 0 && r.attempts >= t.opts.Wait.MaxTries {
			return nil, err
		}
		t.client.pauseFor(ctx, t.opts.Wait.pause())
		if end := endOf(ctx, t.client); end != nil {
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
func (t *transport) undo(f form, token string, until time.Time, acquire pending) {
	if own, ok := f.(undoer); ok {
		own.undo()
		return
	}
	first := f.release(t.alive, token, 0)
	t.tasks.spawn(func() {
		ctx, cancel := context.WithDeadline(t.alive, until)
		defer cancel()
		p := first
		if a, ok := acquire.(interface{ over(context.Context) }); ok && t.wire.clustered() {
			a.over(ctx)
			p = f.release(t.alive, token, 0)
		}
		pause := undoPause
		for answers := 0; ; p = f.release(t.alive, token, 0) {
			if _, err := p.wait(ctx); err == nil || !transient(err) {
				answers++
			}
			if answers == 2 || !pauseFor(ctx, between(pause/2, pause)) {
				t.tell(Event{Kind: Undone, At: time.Now(), Key: f.lockKey(), Token: token, Err: ctx.Err()})
				return
			}
			pause = min(2*pause, maxUndoPause)
		}
	})
}
