package lock

import (
	"context"
	"slices"
	"sync"
)

// localQueues lets one goroutine at a time proceed per channel, in order of arrival.
type localQueues struct {
	mu        sync.Mutex
	byChannel map[string]*localQueue
}

// localQueue is the queue of one channel on which waiters are woken. The name of a
// channel contains the key of its lock.
type localQueue struct {
	channel   string
	waiting   []chan struct{} // closed when their goroutine may proceed; guarded by localQueues.mu
	refs      int             // waiting goroutines and the one that proceeds; guarded by localQueues.mu
	notifier  *notifier       // set with waitQueue, by the goroutine that proceeds
	waitQueue *waitQueue
}

// enter waits until the caller may proceed, ctx ends or c is closed.
func (l *localQueues) enter(ctx context.Context, c *Client, channel string) (*localQueue, error) {
	q, ready := l.add(channel)
	if ready == nil {
		return q, nil
	}
	closing, done := c.closing()
	defer done()
	select {
	case <-ready:
		return q, nil
	case <-ctx.Done():
	case <-closing.Done():
	}
	l.remove(q, ready)
	return nil, stopCause(ctx, c)
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
// caller may proceed at once.
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
	if last && q.waitQueue != nil {
		q.notifier.endUse(q.waitQueue)
	}
}

// reuseSubscription joins the waitQueue that an earlier goroutine has opened. It
// returns nil if there is none. A localQueue keeps its waitQueue until it is empty, so
// that the process does not subscribe to a busy key again and again.
func (q *localQueue) reuseSubscription() (*waitQueue, *waiter) {
	if q.waitQueue == nil {
		return nil, nil
	}
	return q.waitQueue, q.waitQueue.join("")
}

// subscribe opens the waitQueue of the key and joins it.
func (q *localQueue) subscribe(n *notifier, channel string) (*waitQueue, *waiter) {
	q.notifier, q.waitQueue = n, n.use(channel, "")
	w := q.waitQueue.join("")
	if q.waitQueue.subscribed() {
		notify(w.wakeup) // another client has subscribed before: a message may have come before w joined
	}
	return q.waitQueue, w
}
