package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// expiryRequest is a request that sets the time to live of a hold's key: a renewal,
// an Extend, or another entry. Until it is known what became of one, the holder
// relies on no more than what the server may have made of it.
type expiryRequest struct {
	sent time.Time // before it was sent
	ttl  time.Duration
	next chan struct{} // closed when the next one may be sent

	nextAllowed bool // the next one may be sent
	unanswered  bool // nobody waits for the reply any more, and it may be carried out yet
	overtakenBy int  // requests sent later that were answered since it is adrift
}

// settledAfter is how many later requests must have been answered before one that went
// down with its connection counts as carried out or never: the server may still have
// had it in a buffer when the first of them came.
const settledAfter = 2

// beginExpiry notes that a request for ttl is sent next, when no other one is under
// way. A ttl of 0 is what leaves the deadline as it is, but no less than that of the
// options.
func (h *hold) beginExpiry(ctx context.Context, ttl time.Duration) (*expiryRequest, error) {
	for {
		h.mu.Lock()
		now := time.Now()
		if err := h.endedAt(now); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		if h.inFlight == nil {
			req := h.noteExpiry(now, ttl)
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

// endExpiry takes in what became of a request: its reply, or an error. It returns why
// the hold is over, nil if it is not; whole = false means that the deadline stays
// nearer than the request makes it, because it is not known what became of an earlier
// one.
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
		// The server revived what is already over here: take it back, unless the
		// release is on its way, which would find nothing and take that for a loss.
		if h.cause != ErrReleased && h.cause != ErrClosed {
			h.base.client.undo(h.base.protocol, h.token, now.Add(req.ttl), nil)
		}
		return false, err
	}
	return h.applyGrant(req), nil
}

// What follows needs h.mu.

// noteExpiry notes that a request for ttl is sent at now.
func (h *hold) noteExpiry(now time.Time, ttl time.Duration) *expiryRequest {
	if ttl == 0 {
		ttl = max(h.base.opts.TTL, min(ttlWithUsable(h.deadline().Sub(now)), maxTTL))
	}
	req := &expiryRequest{sent: now, ttl: ttl, next: make(chan struct{})}
	h.inFlight, h.unsettled = req, append(h.unsettled, req)
	if now.Add(usableTTL(ttl)).Before(h.deadline()) {
		h.sent, h.ttl = now, ttl
		h.renewAt = h.nextRenewal()
	}
	h.base.client.renewer.update(h)
	return req
}

// allowNext lets the next request be sent.
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

// applyGrant counts the deadline from a request that the server has answered, unless
// from a later one already. Others that are open may be carried out, or have been,
// after it: then what they ask for counts. It reports whether none of them did.
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
	h.sent, h.ttl = req.sent, ttl
	h.renewAt = h.nextRenewal()
	h.base.client.renewer.update(h)
	return ttl == req.ttl
}
