package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// hold is the possession of a lock by one token. It is renewed, has a deadline and can
// be lost. A [Lease] is a caller's part of it: reentrant kinds have several leases per
// hold.
type hold struct {
	base  *base
	token string
	fence int64
	began time.Time           // when the grant arrived
	order *semaphore.Weighted // admits one request with a count of entries at a time; nil = not reentrant

	mu            sync.Mutex
	ctx           context.Context // ends with the hold; nil until it is needed
	cancel        context.CancelCauseFunc
	entries       int              // leases that are not unlocked; 0 = ended
	droppedLeases int              // of these, the ones that the garbage collector has found
	sent          time.Time        // time of the request that the deadline counts from
	ttl           time.Duration    // TTL that this request has set
	longestTTL    time.Duration    // of all requests so far
	inFlight      *expiryRequest   // last request, until the next one may be sent; else nil
	unsettled     []*expiryRequest // requests with an unknown outcome
	shortened     bool             // ttl is that of a request for an earlier deadline that no reply has confirmed
	renewals      int
	renewAt       time.Time // zero = no more
	cause         error     // why the hold ended; nil = it has not

	slot int // index in the renewer's heap, −1 = not in it; guarded by renewer.mu, like due
	due  time.Time
}

// valid reports whether the hold has not ended, by the clock.
func (h *hold) valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endedAt(time.Now()) == nil
}

// context returns a context that ends with the hold.
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

// endCause returns why the hold ended; nil if it has not.
func (h *hold) endCause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// setTTL implements [Lease.Extend]. An earlier request with an unknown outcome can
// limit the new deadline; setTTL then asks again, until that request can no longer
// take effect.
func (h *hold) setTTL(ctx context.Context, ttl time.Duration) error {
	if !h.base.client.tasks.begin() {
		return fmt.Errorf("extend lock %q: %w", h.base.key, cmp.Or(h.endCause(), ErrClosed))
	}
	defer h.base.client.tasks.done()
	for range 1 + settledAfter {
		req, err := h.beginExpiry(ctx, ttl, 0)
		if err != nil {
			return fmt.Errorf("extend lock %q: %w", h.base.key, err)
		}
		reply, err := h.base.protocol.extend(ctx, h.base.client.transport, h.token, ttl+h.base.opts.Delay).wait(ctx)
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

// orderEntries waits until no other request of this hold with a count of entries is in
// progress: a request that is sent again could overtake it. If ctx ends, orderEntries
// does not wait; the count of the next request corrects the server's.
func (h *hold) orderEntries(ctx context.Context) (done func()) {
	if h.order == nil || !h.order.TryAcquire(1) && h.order.Acquire(ctx, 1) != nil {
		return func() {}
	}
	return func() { h.order.Release(1) }
}

// enter adds an entry. This also renews the hold.
func (h *hold) enter(ctx context.Context) error {
	defer h.orderEntries(ctx)()
	req, err := h.beginExpiry(ctx, 0, 1)
	if err != nil {
		return err
	}
	var held *HeldError
	reply, err := h.base.protocol.acquire(ctx, h.token, req.ttl+h.base.opts.Delay, req.entries).wait(ctx)
	if err == nil {
		held, _, err = parseAcquire(h.base.key, reply)
	}
	granted := int64(1)
	if held != nil {
		granted = 0 // another client holds the lock
	}
	_, ended := h.endExpiry(req, granted, err)
	if err != nil {
		h.undoEntry()
		return describe("enter", h.base.key, err)
	}
	return ended
}

// enterAgain returns a further lease of the hold, for r.
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
		Attempts: r.attempts, Elapsed: now.Sub(r.began)})
	return newEntry(h), nil
}

// undoEntry removes an entry that no caller got. The next request corrects the count
// on the server. If no entry is left, undoEntry releases the lock.
func (h *hold) undoEntry() {
	h.mu.Lock()
	h.entries--
	left := h.entries
	h.mu.Unlock()
	if left == 0 && h.finish(errReleased) {
		h.releaseUntil(h.expiresBy())
	}
}

// exit removes one entry, and with the last entry releases the lock.
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
		h.releaseUntil(h.expiresBy())
	}
	if err != nil {
		return describe("unlock", h.base.key, err)
	}
	if inFlight != nil { // sent before the release, which may overtake its second and third request
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
		h.base.client.emitHandOver(h.base.key, h.token, reply)
		return nil
	}
	h.finish(ErrLost) // for the other entries; after the last one the hold has ended already
	h.emitEnd(Lost)
	return fmt.Errorf("unlock %q: %w", h.base.key, ErrLost)
}

// expiresBy returns the time by which every key that the hold may have on the server
// has expired.
func (h *hold) expiresBy() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.longestTTL + h.base.opts.Delay)
}

// removeEntry removes one entry. With the last entry the hold ends in this process.
func (h *hold) removeEntry() (left int, inFlight *expiryRequest, err error) {
	h.mu.Lock()
	if err := h.endedAt(time.Now()); err != nil {
		h.mu.Unlock()
		return 0, nil, err
	}
	h.entries--
	left = h.entries
	if left == 0 {
		h.cause, inFlight = errReleased, h.inFlight
	}
	h.mu.Unlock()
	if left == 0 {
		h.close()
	}
	return left, inFlight, nil
}

// finish ends the hold for a reason other than its release. It returns false if the
// hold has ended before.
func (h *hold) finish(cause error) bool {
	h.mu.Lock()
	first, mayOutlive := h.cause == nil, len(h.unsettled) > 0 || h.shortened
	if first {
		h.cause = cause
	}
	h.mu.Unlock()
	if first {
		h.close()
		if cause == errMaxHold || cause == ErrLost && (mayOutlive || h.base.several) { // a key may live much longer
			h.releaseAfterDelay(h.expiresBy())
		}
	}
	return first
}

// releaseAfterDelay releases, in the background, the keys that a hold may have that has
// ended without Unlock. They expire by themselves at until.
func (h *hold) releaseAfterDelay(until time.Time) {
	c := h.base.client.core
	if h.base.opts.Delay == 0 {
		h.releaseUntil(until)
		return
	}
	time.AfterFunc(h.base.opts.Delay, func() { c.tasks.spawn(func() { h.releaseUntil(until) }) })
}

// releaseUntil releases what an ended hold may have on the server: see core.releaseUntil.
func (h *hold) releaseUntil(until time.Time) {
	h.base.client.core.releaseUntil(h.base.protocol, h.token, until, nil, func(error) {})
}

// emitHandOver emits an event if the reply to a release of a token says that the lock went to a
// waiter.
func (c *core) emitHandOver(key, token string, reply any) {
	if next, handed := reply.(string); handed {
		owner, _ := tokenOwner(token)
		c.emit(Event{Kind: HandedOver, At: time.Now(), Key: key, Owner: owner, Token: next})
	}
}

// close removes an ended hold from the renewer and ends its context.
func (h *hold) close() {
	h.base.client.renewer.remove(h)
	h.mu.Lock()
	cause, cancel := h.cause, h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// markLost ends a hold whose token the server does not know, and returns its cause.
func (h *hold) markLost() error {
	if h.finish(ErrLost) {
		h.emitEnd(Lost)
	}
	return h.endCause()
}

// emitEnd emits the event of the hold's end.
func (h *hold) emitEnd(kind EventKind) {
	c := h.base.client
	if c.observe == nil {
		c.counts[kind].Add(1) // without the cost of an event
		return
	}
	c.emit(h.event(kind))
}

// event returns an event of the hold's end.
func (h *hold) event(kind EventKind) Event {
	now := time.Now()
	return Event{Kind: kind, At: now, Key: h.base.key, Owner: h.base.client.owner, Token: h.token, Elapsed: now.Sub(h.began)}
}

// The callers of the following functions hold h.mu.

// usableTTL returns the part of a TTL on which a holder may rely. The rest allows for
// a server clock that runs up to 1 % fast, and for expiry in whole milliseconds.
func usableTTL(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// ttlWithUsable returns a TTL, in whole milliseconds, of which at least d is usable.
func ttlWithUsable(d time.Duration) time.Duration {
	return (d + d/99 + 4*time.Millisecond).Truncate(time.Millisecond)
}

// deadline returns the end of the usable TTL or of MaxHold, whichever is first.
func (h *hold) deadline() time.Time {
	d := h.sent.Add(usableTTL(h.ttl))
	if limit := h.base.opts.Renew.MaxHold; limit > 0 && h.began.Add(limit).Before(d) {
		return h.began.Add(limit)
	}
	return d
}

// pastDeadline reports whether the deadline has passed at now, by the monotonic or by
// the wall clock. The monotonic clock stops while the machine is suspended.
func (h *hold) pastDeadline(now time.Time) bool {
	d := h.deadline()
	return !now.Before(d) || !now.Round(0).Before(d.Round(0))
}

// endedAt returns why the hold has ended at now; nil if it has not.
func (h *hold) endedAt(now time.Time) error {
	if h.cause == nil && h.pastDeadline(now) {
		return h.deadlineCause()
	}
	return h.cause
}

// deadlineCause returns the cause of a hold whose deadline has passed.
func (h *hold) deadlineCause() error {
	r := h.base.opts.Renew
	if r.Max > 0 && h.renewals >= r.Max || r.MaxHold > 0 && time.Since(h.began) >= r.MaxHold {
		return errMaxHold
	}
	return ErrLost
}

// expiryRequest is a request that sets the TTL of a hold's key: a renewal, an Extend
// or another entry. While its outcome is unknown, the holder relies only on the
// shortest TTL that the server may have set.
type expiryRequest struct {
	sent time.Time // before the request was sent
	ttl  time.Duration
	next chan struct{} // closed when the next request may be sent

	entries     int  // of the hold, with that of the request
	nextAllowed bool // next is closed
	unanswered  bool // no reply is expected, but the server may still execute the request
	overtakenBy int  // later requests that were answered since then
}

// settledAfter is the number of later requests that must be answered before the
// outcome of an unanswered request counts as final. The server may still have it in a
// buffer of the broken connection when the first of them arrives.
const settledAfter = 2

// beginExpiry waits until no other request is in progress and notes that a request for
// ttl is sent now. With ttl 0 the request keeps the deadline, but asks at least for
// the TTL of the options. It adds entries to the hold in the same step: a release that
// follows leaves them.
func (h *hold) beginExpiry(ctx context.Context, ttl time.Duration, entries int) (*expiryRequest, error) {
	for {
		h.mu.Lock()
		now := time.Now()
		if err := h.endedAt(now); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		if h.inFlight == nil {
			req := h.noteExpiry(now, ttl)
			h.entries += entries
			req.entries = h.entries
			h.mu.Unlock()
			return req, nil
		}
		next := h.inFlight.next
		h.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// endExpiry processes the outcome of a request: its reply or an error. It returns the
// cause if the hold has ended. full is false if the deadline is nearer than the
// request asked for, because the outcome of an earlier one is unknown.
func (h *hold) endExpiry(req *expiryRequest, reply any, err error) (full bool, _ error) {
	h.mu.Lock()
	h.allowNext(req)
	if errors.Is(err, ErrNoQuorum) || outcomeUnknown(err) {
		req.unanswered = true
	} else {
		h.unsettled = slices.DeleteFunc(h.unsettled, func(other *expiryRequest) bool { return other == req })
	}
	if err != nil {
		h.mu.Unlock()
		return false, nil
	}
	if reply != int64(1) {
		h.mu.Unlock()
		return false, h.markLost()
	}
	defer h.mu.Unlock()
	now := time.Now()
	if err := h.endedAt(now); err != nil {
		// The server has renewed a hold that has ended here: undo it. If a release is
		// in progress, it does the same, and an undo before it would make it report a
		// loss.
		if h.cause != errReleased && h.cause != ErrClosed {
			h.releaseAfterDelay(now.Add(req.ttl + h.base.opts.Delay))
		}
		return false, err
	}
	return h.applyGrant(req), nil
}

// The callers of the following functions hold h.mu.

// noteExpiry notes that a request for ttl is sent at now.
func (h *hold) noteExpiry(now time.Time, ttl time.Duration) *expiryRequest {
	if ttl == 0 {
		ttl = max(h.base.opts.TTL, min(ttlWithUsable(h.deadline().Sub(now)), maxTTL))
	}
	req := &expiryRequest{sent: now, ttl: ttl, next: make(chan struct{})}
	h.inFlight, h.unsettled = req, append(h.unsettled, req)
	h.longestTTL = max(h.longestTTL, ttl)
	if now.Add(usableTTL(ttl)).Before(h.deadline()) {
		h.sent, h.ttl, h.shortened = now, ttl, true
		h.renewAt = h.nextRenewal()
	}
	h.base.client.renewer.update(h)
	return req
}

// allowNext allows the next request to be sent.
func (h *hold) allowNext(req *expiryRequest) {
	if req.nextAllowed {
		return
	}
	req.nextAllowed = true
	close(req.next)
	if h.inFlight == req {
		h.inFlight = nil
		h.base.client.renewer.update(h)
	}
}

// applyGrant sets the deadline from an answered request, unless it counts from a later
// one already. The server may execute other requests without a reply after it, so the
// shortest TTL of all counts. full is true if req has the shortest.
func (h *hold) applyGrant(req *expiryRequest) (full bool) {
	h.unsettled = slices.DeleteFunc(h.unsettled, func(other *expiryRequest) bool {
		if other.unanswered && other.sent.Before(req.sent) {
			other.overtakenBy++
		}
		return other.overtakenBy >= settledAfter
	})
	if req.sent.Before(h.sent) {
		return true
	}
	ttl := req.ttl
	for _, other := range h.unsettled {
		ttl = min(ttl, other.ttl)
	}
	h.sent, h.ttl, h.shortened = req.sent, ttl, false
	h.renewAt = h.nextRenewal()
	h.base.client.renewer.update(h)
	return ttl == req.ttl
}
