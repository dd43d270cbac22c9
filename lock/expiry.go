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
	over chan struct{} // closed when the next one may be sent

	passedBy bool // the next one may be sent
	adrift   bool // nobody waits for the reply any more, and it may be carried out yet
	overtook int  // requests sent later that were answered since it is adrift
}

// pastAfter is how many later requests must have been answered before one that went
// down with its connection counts as carried out or never: the server may still have
// had it in a buffer when the first of them came.
const pastAfter = 2

// beginExpiry notes that a request for ttl is sent next, when no other one is under
// way. A ttl of 0 is what leaves the deadline as it is, but no less than that of the
// options.
func (h *hold) beginExpiry(ctx context.Context, ttl time.Duration) (*expiryRequest, error) {
	for {
		h.mu.Lock()
		now := time.Now()
		if err := h.ended(now); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		if h.asking == nil {
			q := h.askExpiry(now, ttl)
			h.mu.Unlock()
			return q, nil
		}
		over := h.asking.over
		h.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// endExpiry takes in what became of a request: its reply, or an error. It returns why
// the hold is over, nil if it is not; whole = false means that the deadline stays
// nearer than the request makes it, because it is not known what became of an earlier
// one.
func (h *hold) endExpiry(q *expiryRequest, reply any, err error) (whole bool, _ error) {
	h.mu.Lock()
	h.giveWay(q)
	if errors.Is(err, ErrNoQuorum) || outcomeUnknown(err) {
		q.adrift = true
	} else {
		h.expiries = slices.DeleteFunc(h.expiries, func(other *expiryRequest) bool { return other == q })
	}
	if err != nil {
		h.mu.Unlock()
		return false, nil
	}
	if reply != int64(1) {
		h.mu.Unlock()
		return false, h.lose()
	}
	defer h.mu.Unlock()
	now := time.Now()
	if err := h.ended(now); err != nil {
		// The server revived what is already over here: take it back, unless the
		// release is on its way, which would find nothing and take that for a loss.
		if h.cause != ErrReleased && h.cause != ErrClosed {
			h.target.client.undo(h.target.form, h.token, now.Add(q.ttl), nil)
		}
		return false, err
	}
	return h.granted(q), nil
}

// What follows needs h.mu.

// askExpiry notes that a request for ttl is sent at now.
func (h *hold) askExpiry(now time.Time, ttl time.Duration) *expiryRequest {
	if ttl == 0 {
		ttl = max(h.target.opts.TTL, min(lasting(h.deadline().Sub(now)), maxTTL))
	}
	q := &expiryRequest{sent: now, ttl: ttl, over: make(chan struct{})}
	h.asking, h.expiries = q, append(h.expiries, q)
	if now.Add(usable(ttl)).Before(h.deadline()) {
		h.sent, h.ttl = now, ttl
		h.renewAt = h.nextRenewal()
	}
	h.target.client.keeper.move(h)
	return q
}

// giveWay lets the next request be sent.
func (h *hold) giveWay(q *expiryRequest) {
	if q.passedBy {
		return
	}
	q.passedBy = true
	close(q.over)
	if h.asking == q {
		h.asking = nil
		h.target.client.keeper.move(h)
	}
}

// granted counts the deadline from a request that the server has answered, unless
// from a later one already. Others that are open may be carried out, or have been,
// after it: then what they ask for counts. It reports whether none of them did.
func (h *hold) granted(q *expiryRequest) (whole bool) {
	h.expiries = slices.DeleteFunc(h.expiries, func(other *expiryRequest) bool {
		if other.adrift && other.sent.Before(q.sent) {
			other.overtook++
		}
		return other.overtook >= pastAfter
	})
	if q.sent.Before(h.sent) {
		return true
	}
	ttl := q.ttl
	for _, other := range h.expiries {
		ttl = min(ttl, other.ttl)
	}
	h.sent, h.ttl = q.sent, ttl
	h.renewAt = h.nextRenewal()
	h.target.client.keeper.move(h)
	return ttl == q.ttl
}
