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
	base  *base // the lock, and how it is held
	token string
	fence int64
	began time.Time // when the reply came
	order gate      // admits one request that carries a count of entries at a time; nil if the lock is not reentrant

	mu            sync.Mutex
	ctx           context.Context // ends with the hold; nil before somebody asks for it
	cancel        context.CancelCauseFunc
	entries       int              // leases that were not unlocked; 0 = over
	droppedLeases int              // of these, how many nobody can unlock any more
	sent          time.Time        // before the request that the deadline counts from
	ttl           time.Duration    // what that request is good for
	inFlight      *expiryRequest   // the last, while no other one may be sent; else nil
	unsettled     []*expiryRequest // those of which it is not known what became of them
	renewals      int
	renewAt       time.Time // zero = no more
	cause         error     // why it ended; nil while it is ours

	slot int // place in the keeper's heap, −1 = none; the keeper's
	due  time.Time
}

func newHold(b *base, token string, fence int64, sent time.Time) *hold {
	h := &hold{base: b, token: token, fence: fence, began: time.Now(), entries: 1, sent: sent, ttl: b.opts.TTL, slot: -1}
	h.renewAt = h.nextRenewal()
	return h
}

// valid reports whether the lock is ours, by the clock alone.
func (h *hold) valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endedAt(time.Now()) == nil
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

// endCause returns why the hold ended.
func (h *hold) endCause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// extend implements [Lease.Extend]. After a request that was lost on its way it asks
// until the server must have had that.
func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	if !h.base.client.tasks.begin() {
		return fmt.Errorf("extend lock %q: %w", h.base.key, cmp.Or(h.endCause(), ErrClosed))
	}
	defer h.base.client.tasks.done()
	for range 1 + settledAfter {
		req, err := h.beginExpiry(ctx, ttl)
		if err != nil {
			return fmt.Errorf("extend lock %q: %w", h.base.key, err)
		}
		reply, err := h.base.protocol.extend(ctx, h.token, ttl).wait(ctx)
		full, ended := h.endExpiry(req, reply, err)
		switch {
		case err != nil:
			return describe("extend", h.base.key, err)
		case ended != nil:
			return fmt.Errorf("extend lock %q: %w", h.base.key, ended)
		case full:
			return nil
		}
	}
	return nil
}

// orderEntries waits until no other request of this hold that carries entries is
// under way: one that has to be sent again would overtake them. The order is
// given up when ctx ends; the next count to arrive puts things right.
func (h *hold) orderEntries(ctx context.Context) (done func()) {
	if h.order == nil || h.order.enter(ctx) != nil {
		return func() {}
	}
	return h.order.leave
}

// enter adds an entry. The hold is renewed by it.
func (h *hold) enter(ctx context.Context) error {
	defer h.orderEntries(ctx)()
	req, err := h.beginExpiry(ctx, 0)
	if err != nil {
		return err
	}
	var held *HeldError
	reply, err := h.base.protocol.acquire(ctx, h.token, req.ttl, h.addEntry()).wait(ctx)
	if err == nil {
		held, _, err = parseAcquire(h.base.key, reply)
	}
	granted := int64(1)
	if held != nil {
		granted = 0 // somebody else's by now
	}
	_, ended := h.endExpiry(req, granted, err)
	if err != nil {
		h.undoEntry()
		return describe("enter", h.base.key, err)
	}
	return ended
}

// enterAgain takes a further lease of the hold, for a request.
func (h *hold) enterAgain(ctx context.Context, r *request) (*Lease, error) {
	r.attempts++
	if !h.base.client.tasks.begin() {
		return nil, describe("enter", h.base.key, ErrClosed)
	}
	defer h.base.client.tasks.done()
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	h.base.client.emit(Event{Kind: Acquired, At: now, Key: h.base.key, Owner: h.base.client.owner, Token: h.token,
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

// undoEntry takes an entry off that nobody got. If the server counts it, the next
// request says otherwise; if all others have left meanwhile, there is none, and the
// lock is given back.
func (h *hold) undoEntry() {
	h.mu.Lock()
	h.entries--
	left := h.entries
	h.mu.Unlock()
	if left == 0 && h.finish(ErrReleased) {
		h.base.client.undo(h.base.protocol, h.token, h.expiresBy(), nil)
	}
}

// exit gives back one entry, and with the last one the lock.
func (h *hold) exit(ctx context.Context) error {
	if !h.base.client.tasks.begin() {
		return fmt.Errorf("unlock %q: %w", h.base.key, cmp.Or(h.endCause(), ErrClosed))
	}
	defer h.base.client.tasks.done()
	done := h.orderEntries(ctx)
	left, inFlight, err := h.removeEntry()
	if err != nil {
		done()
		return fmt.Errorf("unlock %q: %w", h.base.key, err)
	}
	reply, err := h.base.protocol.release(ctx, h.token, left).wait(ctx)
	done()
	if left == 0 && transient(err) {
		h.base.client.undo(h.base.protocol, h.token, h.expiresBy(), nil)
	}
	if err != nil {
		return describe("unlock", h.base.key, err)
	}
	if inFlight != nil { // it travelled ahead of the release, so its reply is here too
		select {
		case <-inFlight.next:
		case <-ctx.Done():
			return describe("unlock", h.base.key, ctx.Err())
		}
	}
	if reply != nil {
		if left == 0 {
			h.emitEnd(Released)
		}
		if next, handed := reply.(string); handed {
			h.base.client.emit(Event{Kind: HandedOver, At: time.Now(), Key: h.base.key, Owner: h.base.client.owner, Token: next})
		}
		return nil
	}
	h.finish(ErrLost) // the other entries; the last one ended on this side already
	h.emitEnd(Lost)
	return fmt.Errorf("unlock %q: %w", h.base.key, ErrLost)
}

// expiresBy returns when the last key that the server may have for it has expired.
func (h *hold) expiresBy() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	ttl := max(h.ttl, h.base.opts.TTL)
	for _, req := range h.unsettled {
		ttl = max(ttl, req.ttl)
	}
	return time.Now().Add(ttl)
}

// removeEntry takes one entry off; with the last one the hold ends on this side.
func (h *hold) removeEntry() (left int, inFlight *expiryRequest, err error) {
	h.mu.Lock()
	if err := h.endedAt(time.Now()); err != nil {
		h.mu.Unlock()
		return 0, nil, err
	}
	h.entries--
	left = h.entries
	if left == 0 {
		h.cause, inFlight = ErrReleased, h.inFlight
	}
	h.mu.Unlock()
	if left == 0 {
		h.close()
	}
	return left, inFlight, nil
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
		own, quorum := h.base.protocol.(undoer)
		switch {
		case cause == ErrMaxHold: // its key may have long to live yet
			h.base.client.undo(h.base.protocol, h.token, h.expiresBy(), nil)
		case quorum && cause != ErrReleased && cause != ErrClosed:
			own.undo() // lost, but not everywhere
		}
	}
	return first
}

// close has a hold that is over end everywhere on this side.
func (h *hold) close() {
	h.base.client.renewer.remove(h)
	h.mu.Lock()
	cause, cancel := h.cause, h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// markLost ends a hold whose token the server no longer knows, and returns why it
// is over.
func (h *hold) markLost() error {
	if h.finish(ErrLost) {
		h.emitEnd(Lost)
	}
	return h.endCause()
}

// emitEnd tells the observer how the hold ended.
func (h *hold) emitEnd(kind EventKind) {
	h.base.client.emit(h.event(kind))
}

// event is one of those that end the hold.
func (h *hold) event(kind EventKind) Event {
	now := time.Now()
	return Event{Kind: kind, At: now, Key: h.base.key, Owner: h.base.client.owner, Token: h.token, Held: now.Sub(h.began)}
}

// What follows needs h.mu.

// usableTTL is the part of a TTL that a holder may rely on: the rest allows for a
// server whose clock runs up to 1 % fast, and for its expiring by whole
// milliseconds.
func usableTTL(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// ttlWithUsable is a TTL, in whole milliseconds, of which at least d is usable.
func ttlWithUsable(d time.Duration) time.Duration {
	return (d + d/99 + 4*time.Millisecond).Truncate(time.Millisecond)
}

// deadline is the end of the hold: its time, or its longest hold.
func (h *hold) deadline() time.Time {
	d := h.sent.Add(usableTTL(h.ttl))
	if limit := h.base.opts.Renew.MaxHold; limit > 0 && h.began.Add(limit).Before(d) {
		return h.began.Add(limit)
	}
	return d
}

// pastDeadline reports whether the deadline has passed at now, by the monotonic or by
// the wall clock: the former stands still while the machine is suspended.
func (h *hold) pastDeadline(now time.Time) bool {
	d := h.deadline()
	return !now.Before(d) || !now.Round(0).Before(d.Round(0))
}

// endedAt returns why the hold is over at now, nil if it is not.
func (h *hold) endedAt(now time.Time) error {
	if h.cause == nil && h.pastDeadline(now) {
		return h.deadlineCause()
	}
	return h.cause
}

// deadlineCause returns what it means that the deadline has passed.
func (h *hold) deadlineCause() error {
	r := h.base.opts.Renew
	if r.Max > 0 && h.renewals >= r.Max || r.MaxHold > 0 && time.Since(h.began) >= r.MaxHold {
		return ErrMaxHold
	}
	return ErrLost
}
