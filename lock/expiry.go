package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// expiryRequest is a request that sets the TTL of a hold's key: a renewal, an Extend
// or another entry. While its outcome is unknown, the holder relies only on the
// shortest TTL that the server may have set.
type expiryRequest struct {
	sent time.Time // before the request was sent
	ttl  time.Duration
	next chan struct{} // closed when the next request may be sent

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
// the TTL of the options.
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
		if h.cause != ErrReleased && h.cause != ErrClosed {
			h.base.client.undo(h.base.protocol, h.token, now.Add(req.ttl), nil)
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
		h.sent, h.ttl = now, ttl
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
	h.sent, h.ttl = req.sent, ttl
	h.renewAt = h.nextRenewal()
	h.base.client.renewer.update(h)
	return ttl == req.ttl
}
