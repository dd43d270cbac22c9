package lock

import (
	"context"
	"slices"
	"sync"
)

// localQueues let one goroutine at a time through, at each spot, in order of arrival.
type localQueues struct {
	mu    sync.Mutex
	byKey map[queueKey]*localQueue
}

// queueKey is where goroutines of one identity queue: for one key, by the news that
// they wait for.
type queueKey struct{ key, channel string }

// localQueue is the queue at one spot.
type localQueue struct {
	key       queueKey
	waiting   []chan struct{} // closed when it is their turn; guarded by turns.mu
	refs      int             // those in the queue, and the one whose turn it is; guarded by turns.mu
	notifier  *notifier       // set, with line, by whoever is at the front
	waitQueue *waitQueue
}

// acquire waits until it is the caller's turn.
func (l *localQueues) acquire(ctx context.Context, c *Client, key queueKey) (*localQueue, error) {
	q, ready := l.enter(key)
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
	l.quit(q, ready)
	return nil, stopCause(ctx, c)
}

// release lets the next one through.
func (l *localQueues) release(q *localQueue) { l.quit(q, nil) }

// busy reports whether somebody has a turn there, or waits for one.
func (l *localQueues) busy(key queueKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[key] != nil
}

// enter joins the queue, with what tells the caller when it is his turn; nil if
// it is now.
func (l *localQueues) enter(key queueKey) (q *localQueue, ready chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q = l.byKey[key]
	if q == nil {
		if l.byKey == nil {
			l.byKey = make(map[queueKey]*localQueue)
		}
		q = &localQueue{key: key}
		l.byKey[key] = q
	} else {
		ready = make(chan struct{})
		q.waiting = append(q.waiting, ready)
	}
	q.refs++
	return q, ready
}

// quit leaves the queue. If it is the caller's turn, which may be since he gave
// up, the next one is let through.
func (l *localQueues) quit(q *localQueue, ready chan struct{}) {
	l.mu.Lock()
	q.refs--
	last := q.refs == 0
	if i := slices.Index(q.waiting, ready); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else if last {
		delete(l.byKey, q.key)
	} else {
		close(q.waiting[0])
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	l.mu.Unlock()
	if last && q.waitQueue != nil {
		q.notifier.release(q.waitQueue)
	}
}

// reuseSubscription stands in the line that an earlier guest has opened; nil if none has.
// A line is kept until the last guest has gone, so that a busy key is not
// subscribed to over and over.
func (q *localQueue) reuseSubscription() (*waitQueue, *waiter) {
	if q.waitQueue == nil {
		return nil, nil
	}
	return q.waitQueue, q.waitQueue.join("")
}

// subscribe opens the line of the key and stands in it.
func (q *localQueue) subscribe(n *notifier, channel string) (*waitQueue, *waiter) {
	q.notifier, q.waitQueue = n, n.acquire(channel, "")
	w := q.waitQueue.join("")
	if q.waitQueue.subscribed() {
		notify(w.wakeup) // for others it listens already: what came before we joined, we have missed
	}
	return q.waitQueue, w
}
