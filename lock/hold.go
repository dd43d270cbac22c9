package lock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// hold is one token's possession of a lock: what is renewed, what has a
// deadline, what can be lost. The caller's share in it is a [Lease]; kinds that
// can be entered again have several leases on one hold.
type hold struct {
	target *target // the lock, and how it is held
	token  string
	fence  int64
	began  time.Time // when the reply came
	order  gate      // admits one request that carries a count of entries at a time; nil if the lock is not reentrant

	mu       sync.Mutex
	ctx      context.Context // ends with the hold; nil before somebody asks for it
	cancel   context.CancelCauseFunc
	entries  int              // leases that were not unlocked; 0 = over
	dropped  int              // of these, how many nobody can unlock any more
	sent     time.Time        // before the request that the deadline counts from
	ttl      time.Duration    // what that request is good for
	asking   *expiryRequest   // the last, while no other one may be sent; else nil
	expiries []*expiryRequest // those of which it is not known what became of them
	renewals int
	renewAt  time.Time // zero = no more
	cause    error     // why it ended; nil while it is ours

	slot int // place in the keeper's heap, −1 = none; the keeper's
	due  time.Time
}

func newHold(t *target, token string, fence int64, sent time.Time) *hold {
	h := &hold{target: t, token: token, fence: fence, began: time.Now(), entries: 1, sent: sent, ttl: t.opts.TTL, slot: -1}
	h.renewAt = h.nextRenewal()
	return h
}

// valid reports whether the lock is ours, by the clock alone.
func (h *hold) valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended(time.Now()) == nil
}

// context returns one that ends with the hold.
func (h *hold) context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
		if h.cause != nil {
			h.cancel(h.cause)
		}
	}
	return h.ctx
}

// why returns why the hold ended.
func (h *hold) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// extend implements [Lease.Extend]. After a request that was lost on its way it asks
// until the server must have had that.
func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	if !h.target.client.tasks.begin() {
		return fmt.Errorf("extend lock %q: %w", h.target.key, cmp.Or(h.why(), ErrClosed))
	}
	defer h.target.client.tasks.done()
	for range 1 + pastAfter {
		q, err := h.beginExpiry(ctx, ttl)
		if err != nil {
			return fmt.Errorf("extend lock %q: %w", h.target.key, err)
		}
		reply, err := h.target.form.extend(ctx, h.token, ttl).wait(ctx)
		whole, over := h.endExpiry(q, reply, err)
		switch {
		case err != nil:
			return describe("extend", h.target.key, err)
		case over != nil:
			return fmt.Errorf("extend lock %q: %w", h.target.key, over)
		case whole:
			return nil
		}
	}
	return nil
}

// inOrder waits until no other request of this hold that carries entries is
// under way: one that has to be sent again would overtake them. The order is
// given up when ctx ends; the next count to arrive puts things right.
func (h *hold) inOrder(ctx context.Context) (done func()) {
	if h.order == nil || h.order.enter(ctx) != nil {
		return func() {}
	}
	return h.order.leave
}

// enter adds an entry. The hold is renewed by it.
func (h *hold) enter(ctx context.Context) error {
	defer h.inOrder(ctx)()
	q, err := h.beginExpiry(ctx, 0)
	if err != nil {
		return err
	}
	var held *HeldError
	reply, err := h.target.form.acquire(ctx, h.token, q.ttl, h.addEntry()).wait(ctx)
	if err == nil {
		held, _, err = heldBy(h.target.key, reply)
	}
	granted := int64(1)
	if held != nil {
		granted = 0 // somebody else's by now
	}
	_, over := h.endExpiry(q, granted, err)
	if err != nil {
		h.entryFailed()
		return describe("enter", h.target.key, err)
	}
	return over
}

// enterAgain takes a further lease of the hold, for a request.
func (h *hold) enterAgain(ctx context.Context, r *request) (*Lease, error) {
	r.attempts++
	if !h.target.client.tasks.begin() {
		return nil, describe("enter", h.target.key, ErrClosed)
	}
	defer h.target.client.tasks.done()
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	h.target.client.tell(Event{Kind: Acquired, At: now, Key: h.target.key, Owner: h.target.client.owner, Token: h.token,
		Attempts: r.attempts, Waited: now.Sub(r.began)})
	return newEntry(h), nil
}

// addEntry counts another entry, and returns how many there are.
func (h *hold) addEntry() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries++
	return h.entries
}

// entryFailed takes an entry off that nobody got. If the server counts it, the next
// request says otherwise; if all others have left meanwhile, there is none, and the
// lock is given back.
func (h *hold) entryFailed() {
	h.mu.Lock()
	h.entries--
	left := h.entries
	h.mu.Unlock()
	if left == 0 && h.finish(ErrReleased) {
		h.target.client.undo(h.target.form, h.token, h.until(), nil)
	}
}

// leave gives back one entry, and with the last one the lock.
func (h *hold) leave(ctx context.Context) error {
	if !h.target.client.tasks.begin() {
		return fmt.Errorf("unlock %q: %w", h.target.key, cmp.Or(h.why(), ErrClosed))
	}
	defer h.target.client.tasks.done()
	done := h.inOrder(ctx)
	left, asking, err := h.dropEntry()
	if err != nil {
		done()
		return fmt.Errorf("unlock %q: %w", h.target.key, err)
	}
	reply, err := h.target.form.release(ctx, h.token, left).wait(ctx)
	done()
	if left == 0 && transient(err) {
		h.target.client.undo(h.target.form, h.token, h.until(), nil)
	}
	if err != nil {
		return describe("unlock", h.target.key, err)
	}
	if asking != nil { // it travelled ahead of the release, so its reply is here too
		select {
		case <-asking.over:
		case <-ctx.Done():
			return describe("unlock", h.target.key, ctx.Err())
		}
	}
	if reply != nil {
		if left == 0 {
			h.report(Released)
		}
		if next, handed := reply.(string); handed {
			h.target.client.tell(Event{Kind: HandedOver, At: time.Now(), Key: h.target.key, Owner: h.target.client.owner, Token: next})
		}
		return nil
	}
	h.finish(ErrLost) // the other entries; the last one ended on this side already
	h.report(Lost)
	return fmt.Errorf("unlock %q: %w", h.target.key, ErrLost)
}

// until returns when the last key that the server may have for it has expired.
func (h *hold) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	ttl := max(h.ttl, h.target.opts.TTL)
	for _, q := range h.expiries {
		ttl = max(ttl, q.ttl)
	}
	return time.Now().Add(ttl)
}

// dropEntry takes one entry off; with the last one the hold ends on this side.
func (h *hold) dropEntry() (left int, asking *expiryRequest, err error) {
	h.mu.Lock()
	if err := h.ended(time.Now()); err != nil {
		h.mu.Unlock()
		return 0, nil, err
	}
	h.entries--
	left = h.entries
	if left == 0 {
		h.cause, asking = ErrReleased, h.asking
	}
	h.mu.Unlock()
	if left == 0 {
		h.close()
	}
	return left, asking, nil
}

// finish ends the hold for a reason other than its release. It returns false if
// it was over already.
func (h *hold) finish(cause error) bool {
	h.mu.Lock()
	first := h.cause == nil
	if first {
		h.cause = cause
	}
	h.mu.Unlock()
	if first {
		h.close()
		own, quorum := h.target.form.(undoer)
		switch {
		case cause == ErrMaxHold: // its key may have long to live yet
			h.target.client.undo(h.target.form, h.token, h.until(), nil)
		case quorum && cause != ErrReleased && cause != ErrClosed:
			own.undo() // lost, but not everywhere
		}
	}
	return first
}

// close has a hold that is over end everywhere on this side.
func (h *hold) close() {
	h.target.client.keeper.remove(h)
	h.mu.Lock()
	cause, cancel := h.cause, h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// lose ends a hold whose token the server no longer knows, and returns why it
// is over.
func (h *hold) lose() error {
	if h.finish(ErrLost) {
		h.report(Lost)
	}
	return h.why()
}

// report tells the observer how the hold ended.
func (h *hold) report(kind EventKind) {
	h.target.client.tell(h.event(kind))
}

// event is one of those that end the hold.
func (h *hold) event(kind EventKind) Event {
	now := time.Now()
	return Event{Kind: kind, At: now, Key: h.target.key, Owner: h.target.client.owner, Token: h.token, Held: now.Sub(h.began)}
}

// What follows needs h.mu.

// usable is the part of a TTL that a holder may rely on: the rest allows for a
// server whose clock runs up to 1 % fast, and for its expiring by whole
// milliseconds.
func usable(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// lasting is a TTL, in whole milliseconds, of which at least d is usable.
func lasting(d time.Duration) time.Duration {
	return (d + d/99 + 4*time.Millisecond).Truncate(time.Millisecond)
}

// deadline is the end of the hold: its time, or its longest hold.
func (h *hold) deadline() time.Time {
	d := h.sent.Add(usable(h.ttl))
	if limit := h.target.opts.Renew.MaxHold; limit > 0 && h.began.Add(limit).Before(d) {
		return h.began.Add(limit)
	}
	return d
}

// over reports whether the deadline has passed at now, by the monotonic or by
// the wall clock: the former stands still while the machine is suspended.
func (h *hold) over(now time.Time) bool {
	d := h.deadline()
	return !now.Before(d) || !now.Round(0).Before(d.Round(0))
}

// ended returns why the hold is over at now, nil if it is not.
func (h *hold) ended(now time.Time) error {
	if h.cause == nil && h.over(now) {
		return h.overdue()
	}
	return h.cause
}

// overdue returns what it means that the deadline has passed.
func (h *hold) overdue() error {
	r := h.target.opts.Renew
	if r.Max > 0 && h.renewals >= r.Max || r.MaxHold > 0 && time.Since(h.began) >= r.MaxHold {
		return ErrMaxHold
	}
	return ErrLost
}
