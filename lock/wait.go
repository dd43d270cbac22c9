package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// How waiting works. Goroutines that call Lock through one client wait in a localQueue
// per key. Only the first of them talks to the server. The first ones of all clients
// of a core wait in a waitQueue per key. The waitQueue subscribes to the channels of
// the lock. A message, a reconnect and the deadline of the holder wake only the first
// waiter. A release sends its message to one process, the first that is registered on
// the server (waiters.go). For the readers of an [Client.RW] and some names on a cluster, it goes
// to all.

// foreignPollInterval is the pause between attempts if the holder's release may send
// no message: the holder uses another library, or the subscription is not confirmed.
const foreignPollInterval = 250 * time.Millisecond

// maxPollInterval is the average pause between attempts if the holder's release sends
// a message. The key may also vanish without one (DEL, FLUSHALL, eviction).
const maxPollInterval = 5 * time.Second

// minBackoff and maxBackoff are the first and the longest pause between attempts while
// the server cannot be reached.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// waitAndAcquire tries once. If the lock is held, it waits until it has acquired the
// lock or ctx ends.
func (b *base) waitAndAcquire(ctx context.Context, r *request, local *localQueue) (*Lease, error) {
	notifier, processChannel := &b.client.notifier, b.processChannel()
	queue, w := local.reuseSubscription(notifier, processChannel) // before the attempt: no message is missed in between
	r.contended, r.queue = queue != nil, queue
	lease, err := b.tryInQueue(ctx, r, queue, w)
	if queue == nil && errors.Is(err, ErrHeld) {
		queue, w = local.subscribe(notifier, b.protocol.channel(), processChannel)
		r.queue = queue
	}
	if queue == nil {
		return lease, err
	}
	held, backoff := err, minBackoff
	for waited := false; err != nil && (errors.Is(err, ErrHeld) || waited && transient(err)); waited = true {
		if errors.Is(err, ErrHeld) {
			held, backoff = err, minBackoff
		}
		if pause := r.capPoll(b.pollInterval(r, err, queue, backoff)); !r.inOrder || queue.isFirst(w) {
			queue.wakeAfter(pause)
		}
		if err = b.client.await(ctx, w.wakeup, r.acquired); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", b.key, held, err)
			break
		}
		lease, err = b.tryInQueue(ctx, r, queue, w)
		backoff = min(2*backoff, maxBackoff)
	}
	if err == nil {
		queue.wakeAfter(r.capPoll(pollInterval(lease.Token(), queue.untilTurn(b.opts.keyTTL()), queue.subscribed())))
	}
	queue.leave(w, err == nil && (!r.shared || r.chained))
	if r.registrar != nil && (err != nil || lease.Token() != r.token) {
		r.registrar.giveUp(r.token)
		r.token, r.registrar = "", nil
	}
	queue.unregister()
	return lease, err
}

// processChannel returns the channel on which a release wakes this process only; empty
// if releases of this kind of lock wake all processes.
func (b *base) processChannel() string {
	switch p := b.protocol.(type) {
	case *scriptProtocol:
		return p.processChannel()
	case *rwProtocol:
		if p.mode == writeMode {
			return p.writers.processChannel()
		}
	case *redlockAttempt:
		return p.redlock.firstNode.processChannel()
	}
	return ""
}

// tryInQueue tries once, as w, a waiter in queue; nil = there is none yet. If the lock is
// held, the next release hands it to the waiter if it is inOrder or ctx is for [inTurn], or if its process
// was woken too often and found the lock taken.
func (b *base) tryInQueue(ctx context.Context, r *request, queue *waitQueue, w *waiter) (_ *Lease, err error) {
	p, hands := b.protocol.(*scriptProtocol)
	hands = hands && !p.broadcast && !r.noHandOver
	if hands && queue != nil && r.token == "" && (r.inOrder || ctx.Value(inTurn{}) != nil || queue.starving()) {
		if r.token, err = b.client.newProcessToken(b.client.owner, r.inOrder); err != nil {
			return nil, err
		}
		r.registrar = p
		queue.setToken(w, r.token)
	}
	r.acquired = r.owner.nextAcquire()
	return r.try(ctx, r)
}

// capPoll returns pause, at most pollEvery.
func (r *request) capPoll(pause time.Duration) time.Duration {
	if r.pollEvery > 0 {
		return min(pause, r.pollEvery)
	}
	return pause
}

// pollInterval returns the pause of a waiter while a token holds the lock. A message may
// end it earlier. A holder of this package publishes its release, so a subscribed
// waiter waits for the end of the holder's TTL, at most 2.5 to 7.5 s at random.
func pollInterval(token string, ttl time.Duration, subscribed bool) time.Duration {
	limit := foreignPollInterval
	if _, ours := tokenOwner(token); ours && subscribed && ttl >= 0 {
		limit = randomBetween(maxPollInterval/2, maxPollInterval*3/2)
	}
	if ttl < 0 {
		return limit
	}
	return min(ttl+time.Millisecond, limit)
}

// pollInterval returns the pause after an attempt of a waiter in queue that ended with
// err. If a release wakes one process, that process may be stopped, so a registered
// process polls by itself: every 1 to 2 s if it is one of the next.
func (b *base) pollInterval(r *request, err error, queue *waitQueue, backoff time.Duration) time.Duration {
	var held *HeldError
	switch {
	case !errors.As(err, &held):
		return backoff
	case b.processChannel() == "":
		return pollInterval(held.Token, held.TTL, queue.subscribed())
	}
	pause := pollInterval(held.Token, queue.untilTurn(held.TTL), queue.subscribedBoth())
	if r.inOrder || queue.isNext() {
		pause = min(pause, randomBetween(time.Second, 2*time.Second))
	}
	return pause
}

// localQueues lets one goroutine at a time proceed per channel, in order of arrival.
type localQueues struct {
	mu        sync.Mutex
	byChannel map[string]*localQueue
}

// localQueue is the queue of one channel on which waiters are woken. The name of a
// channel contains the key of its lock.
type localQueue struct {
	channel   string
	inOrder   bool            // its waiter has its own place in the queue of a fair lock
	waiting   []chan struct{} // closed when their goroutine may proceed; guarded by localQueues.mu
	refs      int             // waiting goroutines and the one that proceeds; guarded by localQueues.mu
	notifier  *notifier       // set with waitQueue, by the goroutine that proceeds
	waitQueue *waitQueue
}

// enter waits until the caller may proceed, ctx ends or c is closed. It returns nil if
// acquired is closed before that.
func (l *localQueues) enter(ctx context.Context, c *Client, channel string, acquired <-chan struct{}) (*localQueue, error) {
	q, ready := l.add(channel)
	if ready == nil {
		return q, nil
	}
	err := c.await(ctx, ready, acquired)
	select {
	case <-ready:
		if err == nil {
			return q, nil
		}
	default:
	}
	l.remove(q, ready)
	return nil, err
}

// leave lets the next goroutine proceed.
func (l *localQueues) leave(q *localQueue) { l.remove(q, nil) }

// busy reports whether a goroutine proceeds or waits.
func (l *localQueues) busy(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byChannel[channel] != nil
}

// add adds the caller to the queue. ready is closed when the caller may proceed; it is nil if the
// caller may proceed immediately.
func (l *localQueues) add(channel string) (q *localQueue, ready chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q = l.byChannel[channel]
	if q == nil {
		if l.byChannel == nil {
			l.byChannel = make(map[string]*localQueue)
		}
		q = &localQueue{channel: channel}
		l.byChannel[channel] = q
	} else {
		ready = make(chan struct{})
		q.waiting = append(q.waiting, ready)
	}
	q.refs++
	return q, ready
}

// remove removes the caller from the queue. If the caller may proceed, also if it has just given up, the
// next goroutine proceeds.
func (l *localQueues) remove(q *localQueue, ready chan struct{}) {
	l.mu.Lock()
	q.refs--
	last := q.refs == 0
	if i := slices.Index(q.waiting, ready); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else if last {
		delete(l.byChannel, q.channel)
	} else {
		close(q.waiting[0])
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	l.mu.Unlock()
	if last {
		q.endUse()
	}
}

// endUse ends the use of the waitQueue, if there is one.
func (q *localQueue) endUse() {
	if q.waitQueue != nil {
		q.notifier.endUse(q.waitQueue)
	}
}

// reuseSubscription joins the waitQueue that an earlier goroutine has opened. It
// returns nil if there is none. A localQueue keeps its waitQueue until it is empty, so
// that the process does not subscribe to a busy key again and again.
func (q *localQueue) reuseSubscription(n *notifier, processChannel string) (*waitQueue, *waiter) {
	if q.waitQueue == nil && processChannel != "" {
		q.notifier, q.waitQueue = n, n.reuse(processChannel)
	}
	if q.waitQueue == nil {
		return nil, nil
	}
	return q.waitQueue, q.waitQueue.join(q.inOrder)
}

// subscribe opens the waitQueue of the key and joins it.
func (q *localQueue) subscribe(n *notifier, channel, processChannel string) (*waitQueue, *waiter) {
	q.notifier, q.waitQueue = n, n.use(channel, processChannel)
	w := q.waitQueue.join(q.inOrder)
	if q.waitQueue.subscribed() {
		notify(w.wakeup) // another client has subscribed before: a message may have come before w joined
	}
	return q.waitQueue, w
}
