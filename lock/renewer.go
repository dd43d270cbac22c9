package lock

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// renewer is a heap of all holds of a core, ordered by their next renewal or deadline.
// One goroutine, runRenewer, handles all of them.
type renewer struct {
	mu     sync.Mutex
	holds  holdHeap
	wakeAt time.Time     // no hold is due before; runRenewer sleeps until then
	wake   chan struct{} // wakeAt has become earlier
	epoch  time.Time
}

func (r *renewer) init() { r.wake, r.epoch = make(chan struct{}, 1), time.Now() }

// alignToSlot returns the last multiple of grain, counted from r.epoch, that is not
// after at. Holds that are due at about the same time are then renewed in one batch.
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

// update moves a hold to its new place in the heap. The caller holds h.mu.
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

// wakeIfSooner wakes runRenewer if it would sleep too long for h. The end of a hold
// does not delay wakeAt: with short holds, runRenewer would wake for every one.
func (r *renewer) wakeIfSooner(h *hold) {
	if h.due.Before(r.wakeAt) {
		r.wakeAt = h.due
		notify(r.wake)
	}
}

// popDue returns the holds that are due at now, and the time until the next one. The
// holds stay in the heap, where Close finds them, with a due time in the far future.
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

// all returns the holds for which keep returns true.
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

// runRenewer ends the holds whose deadline has passed and renews the holds that are
// due, in batches.
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
		timer.Reset(next) // before the holds are handled: they may wake the renewer sooner
		var batch []renewal
		for _, h := range due {
			if q := h.handleDue(time.Now()); q != nil {
				batch = append(batch, renewal{h, q})
			}
		}
		slices.SortStableFunc(batch, func(a, b renewal) int { return cmp.Compare(a.base.opts.TTL, b.base.opts.TTL) })
		for len(batch) > 0 { // with one TTL, and so with one timeout; the nodes of a cluster must not wait for each other
			n := 1
			for n < len(batch) && !c.transport.Clustered() && batch[n].base.opts.TTL == batch[0].base.opts.TTL {
				n++
			}
			part := batch[:n]
			c.tasks.spawn(func() { c.renew(part) })
			batch = batch[n:]
		}
	}
}

// renewal is a hold and the noted request of its renewal.
type renewal struct {
	*hold
	request *expiryRequest
}

// handleDue ends a hold whose deadline has passed. Otherwise it updates the hold in
// the heap and returns a request if its renewal is due, else nil.
func (h *hold) handleDue(now time.Time) *expiryRequest {
	h.mu.Lock()
	if err := h.endedAt(now); err != nil {
		expired := h.cause == nil
		h.mu.Unlock()
		if expired && h.finish(err) {
			e := h.event(Expired)
			h.base.client.tasks.spawn(func() { h.base.client.emit(e) }) // in the background: Observe may be slow
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

// redialAfter is how long a renewal may stay without a reply before its connection is
// closed. The server may have stopped, and another may be the master now.
const redialAfter = time.Second

// renew renews holds with one TTL together. Without a reply within a sixth of the TTL, which
// leaves time for another attempt, a hold becomes due again soon, and after redialAfter the
// connection is closed. A late reply still counts.
func (c *core) renew(batch []renewal) {
	timeout := batch[0].base.opts.TTL / 6
	ctx, cancel := context.WithTimeout(c.alive, timeout)
	defer cancel()
	requests := make([]future, len(batch))
	for i, h := range batch {
		requests[i] = h.base.protocol.extend(ctx, c.transport, h.token, h.request.ttl+h.base.opts.Delay)
	}
	for i, h := range batch {
		reply, err := requests[i].wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			h.onRenewed(h.request, reply, err)
			continue
		}
		h.onNotRenewed(h.request, err)
		if timeout >= redialAfter {
			c.transport.DropStale()
		}
		c.tasks.spawn(func() {
			late, cancel := context.WithDeadline(c.alive, h.request.sent.Add(h.request.ttl))
			defer cancel()
			reply, err := requests[i].wait(late)
			h.onRenewed(h.request, reply, err)
		})
	}
}

// onRenewed processes the outcome of a renewal.
func (h *hold) onRenewed(req *expiryRequest, reply any, err error) {
	at := time.Now() // before endExpiry lets a waiting Unlock continue
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
	h.base.client.emit(Event{Kind: Renewed, At: at, Key: h.base.key, Owner: h.base.client.owner, Token: h.token, Elapsed: max(req.sent.Sub(due), 0)})
}

// onNotRenewed schedules another renewal after one that has failed or is late.
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

// leaseDropped notes that the garbage collector has found a lease. When all leases of
// a hold are gone, handleDue stops its renewal. A cleanup should not wake a goroutine.
func (h *hold) leaseDropped() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.droppedLeases++
}

// renewalSlots is the number of instants per renewal interval at which a renewal may
// be sent.
const renewalSlots = 64

// The callers of the following functions hold h.mu.

// nextRenewal returns when to renew a hold: Every after the request that the deadline
// counts from, plus what Extend has added to the usable TTL. It is up to 5 % early, so
// that holds that began together spread, and aligned to a slot. It returns zero if no
// renewal is allowed.
func (h *hold) nextRenewal() time.Time {
	r := h.base.opts.Renew
	if r.Off || r.Max > 0 && h.renewals >= r.Max {
		return time.Time{}
	}
	every := r.Every
	if every >= usableTTL(h.ttl) { // Extend has shortened the TTL
		every = h.ttl / 3
	}
	added := max(usableTTL(h.ttl)-usableTTL(h.base.opts.TTL), 0)
	at := h.sent.Add(added + every - randomBetween(0, every/20+1))
	return h.base.client.renewer.alignToSlot(at, max(every/renewalSlots, 1))
}

// nextRequest returns when to send the next renewal. A request in progress gets a
// sixth of the TTL first.
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

// nextDue returns when the renewer must handle the hold next.
func (h *hold) nextDue() time.Time {
	due := h.deadline()
	if !h.renewAt.IsZero() && h.nextRequest().Before(due) {
		due = h.nextRequest()
	}
	return due
}

// holdHeap implements [heap.Interface], ordered by due.
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
