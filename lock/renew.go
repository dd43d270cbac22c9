package lock

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// keeper knows when each lease needs attention: its next renewal or its
// deadline, whichever is first. One goroutine serves all leases of a transport.
type keeper struct {
	mu     sync.Mutex
	leases leaseHeap
	wake   chan struct{} // the heap's top has changed
}

func (k *keeper) init() { k.wake = make(chan struct{}, 1) }

func (k *keeper) add(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.due = l.nextDue()
	heap.Push(&k.leases, l)
	k.poke(l)
}

// move puts a lease where its new times want it. Called with l.mu held.
func (k *keeper) move(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.slot < 0 {
		return
	}
	l.due = l.nextDue()
	heap.Fix(&k.leases, l.slot)
	k.poke(l)
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.slot >= 0 {
		heap.Remove(&k.leases, l.slot)
	}
}

// poke wakes the goroutine if l is now the first to need attention.
func (k *keeper) poke(l *Lease) {
	if l.slot == 0 {
		wake(k.wake)
	}
}

// takeDue removes and returns the leases that need attention at now, and says
// how long the next one can wait.
func (k *keeper) takeDue(now time.Time) (due []*Lease, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.leases) > 0 && !k.leases[0].due.After(now) {
		due = append(due, heap.Pop(&k.leases).(*Lease))
	}
	if len(k.leases) > 0 {
		return due, k.leases[0].due.Sub(now)
	}
	return due, time.Hour
}

// all returns the leases for which keep reports true.
func (k *keeper) all(keep func(*Lease) bool) []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	var some []*Lease
	for _, l := range k.leases {
		if keep(l) {
			some = append(some, l)
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
		var batch []*Lease
		for _, l := range due {
			if l.attend(time.Now()) {
				batch = append(batch, l)
			}
		}
		if len(batch) > 0 {
			t.tasks.spawn(func() { t.renew(batch) })
		}
		if len(due) > 0 {
			next = 0 // some went back into the heap
		}
		timer.Reset(next)
	}
}

// attend looks after one lease and puts it back into the heap, unless it is
// over. It reports whether the lease is to be renewed now.
func (l *Lease) attend(now time.Time) bool {
	l.mu.Lock()
	if err := l.ended(now); err != nil {
		over := l.cause == nil
		l.mu.Unlock()
		if over && l.finish(err) {
			l.report(Expired)
		}
		return false
	}
	defer l.mu.Unlock()
	renew := !l.renewAt.IsZero() && !now.Before(l.renewAt) && l.renewing == nil
	if renew {
		l.renewing = make(chan struct{})
	}
	l.client.keeper.add(l)
	return renew
}

// renew prolongs a batch of leases in one pipeline. What is not answered in
// time is tried again while the leases last.
func (t *transport) renew(batch []*Lease) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.alive, renewalPatience(batch, sent))
	defer cancel()
	calls := make([]*call, len(batch))
	for i, l := range batch {
		calls[i] = mutexExtend.send(ctx, t.wire, l.key, l.token, l.opts.TTL.Milliseconds())
	}
	for _, c := range calls {
		_ = c.settle(ctx, t.wire) // all of them first: what must be sent again goes together, too
	}
	for i, l := range batch {
		reply, err := calls[i].wait(ctx, t.wire)
		l.renewed(sent, reply, err)
	}
}

// renewalPatience is how long to wait for the replies to a batch: a sixth of
// the shortest TTL, so that there is time for another try.
func renewalPatience(batch []*Lease, now time.Time) time.Duration {
	patience := batch[0].opts.TTL
	for _, l := range batch {
		patience = min(patience, l.opts.TTL/6, l.Deadline().Sub(now))
	}
	return max(patience, time.Millisecond)
}

// renewed takes in the outcome of a renewal that was sent then.
func (l *Lease) renewed(sent time.Time, reply any, err error) {
	due := l.doneRenewing(sent, err)
	if err != nil {
		return
	}
	if l.extended(sent, l.opts.TTL, reply) != nil {
		return
	}
	l.client.tell(Event{Kind: Renewed, At: time.Now(), Key: l.key, Owner: l.client.owner, Token: l.token, Late: sent.Sub(due)})
}

// doneRenewing marks the renewal in flight as over and returns when it was due.
// After an error the next try is soon.
func (l *Lease) doneRenewing(sent time.Time, err error) (due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.renewing)
	l.renewing = nil
	due = l.renewAt
	if err == nil {
		l.renewals++
		return due
	}
	l.renewAt = time.Now().Add(l.opts.TTL / 20)
	l.client.keeper.move(l)
	return due
}

// What follows needs l.mu.

// nextRenewal returns when to renew a lease whose last request was sent then:
// up to a twentieth early, so that leases taken together drift apart. Zero when
// the bounds forbid another.
func (l *Lease) nextRenewal(sent time.Time) time.Time {
	r := l.opts.Renew
	if r.Off || r.Max > 0 && l.renewals >= r.Max {
		return time.Time{}
	}
	return sent.Add(r.Every - rand.N(r.Every/20+1))
}

// nextDue returns when the lease needs attention next.
func (l *Lease) nextDue() time.Time {
	due := l.deadline()
	if l.renewing == nil && !l.renewAt.IsZero() && l.renewAt.Before(due) {
		due = l.renewAt
	}
	return due
}

// leaseHeap is a heap by due time, for container/heap.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}
func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.slot = len(*h)
	*h = append(*h, l)
}
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.slot = -1
	return l
}
