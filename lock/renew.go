package lock

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// keeper knows when each hold needs attention: its next renewal or its
// deadline, whichever is first. One goroutine serves all holds of a transport.
type keeper struct {
	mu    sync.Mutex
	holds holdHeap
	until time.Time     // nothing is due before; the goroutine sleeps so long
	wake  chan struct{} // until has moved
	began time.Time
}

func (k *keeper) init() { k.wake, k.began = make(chan struct{}, 1), time.Now() }

// beat returns the last multiple of grain, since the keeper began, that is not
// after at: what is due at about the same time is due together, and goes in one
// batch.
func (k *keeper) beat(at time.Time, grain time.Duration) time.Time {
	return at.Add(-(at.Sub(k.began) % grain))
}

func (k *keeper) add(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.due = h.nextDue()
	heap.Push(&k.holds, h)
	k.poke(h)
}

// move puts a hold where its new times want it. Called with h.mu held.
func (k *keeper) move(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.slot < 0 {
		return
	}
	h.due = h.nextDue()
	heap.Fix(&k.holds, h.slot)
	k.poke(h)
}

func (k *keeper) remove(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.slot >= 0 {
		heap.Remove(&k.holds, h.slot)
	}
}

// poke wakes the goroutine if it would sleep too long for h. Holds that end
// early do not move the moment back: with short holds the goroutine would do
// nothing but wake up.
func (k *keeper) poke(h *hold) {
	if h.due.Before(k.until) {
		k.until = h.due
		wake(k.wake)
	}
}

// takeDue removes and returns the holds that need attention at now, and says
// how long the next one can wait.
func (k *keeper) takeDue(now time.Time) (due []*hold, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.until) {
		return nil, k.until.Sub(now)
	}
	for len(k.holds) > 0 && !k.holds[0].due.After(now) {
		due = append(due, heap.Pop(&k.holds).(*hold))
	}
	k.until = now.Add(time.Hour)
	if len(k.holds) > 0 {
		k.until = k.holds[0].due
	}
	return due, k.until.Sub(now)
}

// all returns the holds for which keep reports true.
func (k *keeper) all(keep func(*hold) bool) []*hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	var some []*hold
	for _, h := range k.holds {
		if keep(h) {
			some = append(some, h)
		}
	}
	return some
}

// keep is the keeper's goroutine: it ends what is over and sends what is due,
// all that is due at one moment in one batch.
func (t *transport) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-t.alive.Done():
			return
		case <-t.keeper.wake:
		case <-timer.C:
		}
		due, next := t.keeper.takeDue(time.Now())
		timer.Reset(next) // first: what goes back into the heap may wake us sooner
		var batch []*hold
		for _, h := range due {
			if h.attend(time.Now()) {
				batch = append(batch, h)
			}
		}
		if len(batch) > 0 {
			t.tasks.spawn(func() { t.renew(batch) })
		}
	}
}

// attend looks after one hold and puts it back into the heap, unless it is
// over. It reports whether it is to be renewed now.
func (h *hold) attend(now time.Time) bool {
	h.mu.Lock()
	if err := h.ended(now); err != nil {
		over := h.cause == nil
		h.mu.Unlock()
		if over && h.finish(err) {
			h.report(Expired)
		}
		return false
	}
	defer h.mu.Unlock()
	if h.dropped >= h.entries {
		h.renewAt = time.Time{}
	}
	renew := !h.renewAt.IsZero() && !now.Before(h.renewAt) && h.renewing == nil
	if renew {
		h.renewing = make(chan struct{})
	}
	h.client.keeper.add(h)
	return renew
}

// renew prolongs a batch of holds in one pipeline. What is not answered in
// time is tried again while they last, on another connection if there was time
// enough.
func (t *transport) renew(batch []*hold) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.alive, renewalPatience(batch, sent))
	defer cancel()
	requests := make([]pending, len(batch))
	for i, h := range batch {
		requests[i] = h.form.extend(ctx, h.token, h.opts.TTL)
	}
	silent := false
	for _, p := range requests {
		_ = p.settle(ctx) // all of them first: what must be sent again goes together, too
	}
	for i, h := range batch {
		reply, err := requests[i].wait(ctx)
		silent = silent || errors.Is(err, context.DeadlineExceeded)
		h.renewed(sent, reply, err)
	}
	if silent && time.Since(sent) >= silence {
		t.wire.redial()
	}
}

// silence is how long a server may leave a renewal without an answer before its
// connections are given up. It may stand still, and another have taken its place.
const silence = time.Second

// renewalPatience is how long to wait for the replies to a batch: a sixth of
// the shortest TTL, so that there is time for another try.
func renewalPatience(batch []*hold, now time.Time) time.Duration {
	patience := batch[0].opts.TTL
	for _, h := range batch {
		h.mu.Lock()
		patience = min(patience, h.opts.TTL/6, h.deadline().Sub(now))
		h.mu.Unlock()
	}
	return max(patience, time.Millisecond)
}

// renewed takes in the outcome of a renewal that was sent then.
func (h *hold) renewed(sent time.Time, reply any, err error) {
	at := time.Now() // before an Unlock that waits for this goes on
	due := h.doneRenewing(sent, err)
	if err != nil {
		return
	}
	if h.extended(sent, h.opts.TTL, reply) != nil {
		return
	}
	h.client.tell(Event{Kind: Renewed, At: at, Key: h.key, Owner: h.client.owner, Token: h.token, Late: sent.Sub(due)})
}

// doneRenewing marks the renewal in flight as over and returns when it was due.
// After an error the next try is soon.
func (h *hold) doneRenewing(sent time.Time, err error) (due time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.renewing)
	h.renewing = nil
	due = h.renewAt
	if err == nil {
		h.renewals++
		return due
	}
	h.renewAt = time.Now().Add(h.opts.TTL / 20)
	h.client.keeper.move(h)
	return due
}

// abandon notes that a lease was dropped: once nobody can unlock the hold, it is
// no longer renewed. The keeper finds out when it comes by; a cleanup had better
// not wake anybody.
func (h *hold) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped++
}

// beats is how many instants there are between two renewals of a hold at which
// the next may be sent.
const beats = 64

// What follows needs h.mu.

// nextRenewal returns when to renew a hold whose last request was sent then:
// up to a twentieth early, so that holds taken together drift apart, and at most
// a beat before that. Zero when the bounds forbid another.
func (h *hold) nextRenewal(sent time.Time) time.Time {
	r := h.opts.Renew
	if r.Off || r.Max > 0 && h.renewals >= r.Max {
		return time.Time{}
	}
	at := sent.Add(r.Every - rand.N(r.Every/20+1))
	return h.client.keeper.beat(at, max(r.Every/beats, 1))
}

// nextDue returns when the hold needs attention next.
func (h *hold) nextDue() time.Time {
	due := h.deadline()
	if h.renewing == nil && !h.renewAt.IsZero() && h.renewAt.Before(due) {
		due = h.renewAt
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
