package lock

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// renewer knows when each hold needs attention: its next renewal or its
// deadline, whichever is first. One goroutine serves all holds of a transport.
type renewer struct {
	mu     sync.Mutex
	holds  holdHeap
	wakeAt time.Time     // nothing is due before; the goroutine sleeps so long
	wake   chan struct{} // until has moved
	epoch  time.Time
}

func (r *renewer) init() { r.wake, r.epoch = make(chan struct{}, 1), time.Now() }

// alignToSlot returns the last multiple of grain, since the keeper began, that is not
// after at: what is due at about the same time is due together, and goes in one
// batch.
func (r *renewer) alignToSlot(at time.Time, grain time.Duration) time.Time {
	return at.Add(-(at.Sub(r.epoch) % grain))
}

func (r *renewer) add(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.due = h.nextDue()
	heap.Push(&r.holds, h)
	r.wakeIfSooner(h)
}

// update puts a hold where its new times want it. Called with h.mu held.
func (r *renewer) update(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.slot < 0 {
		return
	}
	h.due = h.nextDue()
	heap.Fix(&r.holds, h.slot)
	r.wakeIfSooner(h)
}

func (r *renewer) remove(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.slot >= 0 {
		heap.Remove(&r.holds, h.slot)
	}
}

// wakeIfSooner wakes the goroutine if it would sleep too long for h. Holds that end
// early do not move the moment back: with short holds the goroutine would do
// nothing but wake up.
func (r *renewer) wakeIfSooner(h *hold) {
	if h.due.Before(r.wakeAt) {
		r.wakeAt = h.due
		notify(r.wake)
	}
}

// popDue returns the holds that need attention at now, and says how long the next
// one can wait. They stay in the heap, where Close finds them, as if they were due
// much later.
func (r *renewer) popDue(now time.Time) (due []*hold, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.wakeAt) {
		return nil, r.wakeAt.Sub(now)
	}
	for len(r.holds) > 0 && !r.holds[0].due.After(now) {
		h := r.holds[0]
		h.due = now.Add(maxTTL)
		heap.Fix(&r.holds, 0)
		due = append(due, h)
	}
	r.wakeAt = now.Add(time.Hour)
	if len(r.holds) > 0 && r.holds[0].due.Before(r.wakeAt) {
		r.wakeAt = r.holds[0].due
	}
	return due, r.wakeAt.Sub(now)
}

// all returns the holds for which keep reports true.
func (r *renewer) all(keep func(*hold) bool) []*hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []*hold
	for _, h := range r.holds {
		if keep(h) {
			some = append(some, h)
		}
	}
	return some
}

// runRenewer is the keeper's goroutine: it ends what is over and sends what is due,
// all that is due at one moment in one batch.
func (c *core) runRenewer() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.alive.Done():
			return
		case <-c.renewer.wake:
		case <-timer.C:
		}
		due, next := c.renewer.popDue(time.Now())
		timer.Reset(next) // first: what moves in the heap may wake us sooner
		var batch []renewal
		for _, h := range due {
			if q := h.handleDue(time.Now()); q != nil {
				batch = append(batch, renewal{h, q})
			}
		}
		for _, part := range c.batches(batch) {
			c.tasks.spawn(func() { c.renew(part) })
		}
	}
}

// renewal is a hold to be renewed, by a request that is noted already.
type renewal struct {
	*hold
	request *expiryRequest
}

// batches parts renewals into those that go together: with the same patience and, as
// the nodes of a cluster must not wait for each other, over one connection.
func (c *core) batches(all []renewal) [][]renewal {
	slices.SortStableFunc(all, func(a, b renewal) int { return cmp.Compare(a.base.opts.TTL, b.base.opts.TTL) })
	var parts [][]renewal
	for len(all) > 0 {
		n := 1
		for n < len(all) && !c.transport.clustered() && all[n].base.opts.TTL == all[0].base.opts.TTL {
			n++
		}
		parts, all = append(parts, all[:n]), all[n:]
	}
	return parts
}

// handleDue looks after one hold and says when to do so again, unless it is over. It
// returns the request for its renewal if that is to be sent now, else nil.
func (h *hold) handleDue(now time.Time) *expiryRequest {
	h.mu.Lock()
	if err := h.endedAt(now); err != nil {
		expired := h.cause == nil
		h.mu.Unlock()
		if expired && h.finish(err) {
			e := h.event(Expired)
			h.base.client.tasks.spawn(func() { h.base.client.emit(e) }) // it must not keep the others waiting
		}
		return nil
	}
	defer h.mu.Unlock()
	if h.droppedLeases >= h.entries {
		h.renewAt = time.Time{}
	}
	h.base.client.renewer.update(h)
	if h.renewAt.IsZero() || now.Before(h.nextRequest()) {
		return nil
	}
	return h.noteExpiry(now, h.base.opts.TTL)
}

// renew prolongs a batch of holds in one pipeline. What is not answered in time is
// tried again while they last, on another connection if there was time enough; an
// answer that comes later still counts.
func (c *core) renew(batch []renewal) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.alive, renewalTimeout(batch, began))
	defer cancel()
	requests := make([]future, len(batch))
	for i, h := range batch {
		requests[i] = h.base.protocol.extend(ctx, h.token, h.request.ttl)
	}
	for _, p := range requests {
		if r, ok := p.(resender); ok {
			_ = r.resendIfNeeded(ctx)
		}
	}
	var late []int
	for i, h := range batch {
		reply, err := requests[i].wait(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			h.onNotRenewed(h.request, err)
			late = append(late, i)
			continue
		}
		h.onRenewed(h.request, reply, err)
	}
	if len(late) > 0 && time.Since(began) >= redialAfter {
		c.transport.dropStale()
	}
	for _, i := range late {
		h := batch[i]
		limit, cancel := context.WithDeadline(c.alive, h.request.sent.Add(h.request.ttl))
		reply, err := requests[i].wait(limit)
		cancel()
		h.onRenewed(h.request, reply, err)
	}
}

// redialAfter is how long a server may leave a renewal without an answer before its
// connections are given up. It may stand still, and another have taken its place.
const redialAfter = time.Second

// renewalTimeout is how long to wait for the replies to a batch before the next try:
// a sixth of the TTL, so that there is time for another one.
func renewalTimeout(batch []renewal, now time.Time) time.Duration {
	timeout := batch[0].base.opts.TTL / 6
	for _, h := range batch {
		h.mu.Lock()
		timeout = min(timeout, h.deadline().Sub(now))
		h.mu.Unlock()
	}
	return max(timeout, time.Millisecond)
}

// onRenewed takes in the outcome of a renewal.
func (h *hold) onRenewed(req *expiryRequest, reply any, err error) {
	at := time.Now() // before an Unlock that waits for this goes on
	h.mu.Lock()
	due := h.renewAt
	if err == nil {
		h.renewals++
	}
	h.mu.Unlock()
	if err != nil {
		h.onNotRenewed(req, err)
	}
	if _, ended := h.endExpiry(req, reply, err); ended != nil || err != nil {
		return
	}
	h.base.client.emit(Event{Kind: Renewed, At: at, Key: h.base.key, Owner: h.base.client.owner, Token: h.token, Late: max(req.sent.Sub(due), 0)})
}

// onNotRenewed has another renewal be sent soon after one that failed, or that is not
// answered yet.
func (h *hold) onNotRenewed(req *expiryRequest, err error) {
	h.mu.Lock()
	again := !req.nextAllowed && h.cause == nil
	if !req.nextAllowed && !h.renewAt.IsZero() {
		h.renewAt = time.Now().Add(h.base.opts.TTL / 20)
	}
	h.allowNext(req)
	h.mu.Unlock()
	if again {
		h.base.client.emit(Event{Kind: NotRenewed, At: time.Now(), Key: h.base.key, Owner: h.base.client.owner, Token: h.token, Err: describe("renew", h.base.key, err)})
	}
}

// leaseDropped notes that a lease was dropped: once nobody can unlock the hold, it is
// no longer renewed. The keeper finds out when it comes by; a cleanup had better
// not wake anybody.
func (h *hold) leaseDropped() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.droppedLeases++
}

// renewalSlots is how many instants there are between two renewals of a hold at which
// the next may be sent.
const renewalSlots = 64

// What follows needs h.mu.

// nextRenewal returns when to renew a hold whose deadline is known: Every after the
// request that it counts from, or later by what Extend has put on top of the TTL. Up
// to a twentieth early, so that holds taken together drift apart, and at most a beat
// before that. Zero when the bounds forbid another.
func (h *hold) nextRenewal() time.Time {
	r := h.base.opts.Renew
	if r.Off || r.Max > 0 && h.renewals >= r.Max {
		return time.Time{}
	}
	every := r.Every
	if every >= usableTTL(h.ttl) { // shortened by Extend
		every = h.ttl / 3
	}
	at := h.sent.Add(max(h.ttl-h.base.opts.TTL, 0) + every - rand.N(every/20+1))
	return h.base.client.renewer.alignToSlot(at, max(every/renewalSlots, 1))
}

// nextRequest returns when to renew a hold that is to be renewed, if not before its
// deadline. A request that is under way is left a sixth of the TTL.
func (h *hold) nextRequest() time.Time {
	if req := h.inFlight; req != nil {
		return later(h.renewAt, req.sent.Add(h.base.opts.TTL/6))
	}
	return h.renewAt
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// nextDue returns when the hold needs attention next.
func (h *hold) nextDue() time.Time {
	due := h.deadline()
	if !h.renewAt.IsZero() && h.nextRequest().Before(due) {
		due = h.nextRequest()
	}
	return due
}

// holdHeap is a heap by due time, for container/heap.
type holdHeap []*hold

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}
func (h *holdHeap) Push(x any) {
	last := x.(*hold)
	last.slot = len(*h)
	*h = append(*h, last)
}
func (h *holdHeap) Pop() any {
	end := len(*h) - 1
	last := (*h)[end]
	(*h)[end] = nil
	*h = (*h)[:end]
	last.slot = -1
	return last
}
