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
func (ts *localQueues) acquire(ctx context.Context, c *Client, at queueKey) (*localQueue, error) {
	t, mine := ts.enter(at)
	if mine == nil {
		return t, nil
	}
	closing, through := c.closing()
	defer through()
	select {
	case <-mine:
		return t, nil
	case <-ctx.Done():
	case <-closing.Done():
	}
	ts.quit(t, mine)
	return nil, stopCause(ctx, c)
}

// release lets the next one through.
func (ts *localQueues) release(t *localQueue) { ts.quit(t, nil) }

// busy reports whether somebody has a turn there, or waits for one.
func (ts *localQueues) busy(at queueKey) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byKey[at] != nil
}

// enter joins the queue, with what tells the caller when it is his turn; nil if
// it is now.
func (ts *localQueues) enter(at queueKey) (t *localQueue, mine chan struct{}) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t = ts.byKey[at]
	if t == nil {
		if ts.byKey == nil {
			ts.byKey = make(map[queueKey]*localQueue)
		}
		t = &localQueue{key: at}
		ts.byKey[at] = t
	} else {
		mine = make(chan struct{})
		t.waiting = append(t.waiting, mine)
	}
	t.refs++
	return t, mine
}

// quit leaves the queue. If it is the caller's turn, which may be since he gave
// up, the next one is let through.
func (ts *localQueues) quit(t *localQueue, mine chan struct{}) {
	ts.mu.Lock()
	t.refs--
	last := t.refs == 0
	if at := slices.Index(t.waiting, mine); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	} else if last {
		delete(ts.byKey, t.key)
	} else {
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	ts.mu.Unlock()
	if last && t.waitQueue != nil {
		t.notifier.release(t.waitQueue)
	}
}

// reuseSubscription stands in the line that an earlier guest has opened; nil if none has.
// A line is kept until the last guest has gone, so that a busy key is not
// subscribed to over and over.
func (t *localQueue) reuseSubscription() (*waitQueue, *waiter) {
	if t.waitQueue == nil {
		return nil, nil
	}
	return t.waitQueue, t.waitQueue.join("")
}

// subscribe opens the line of the key and stands in it.
func (t *localQueue) subscribe(n *notifier, channel string) (*waitQueue, *waiter) {
	t.notifier, t.waitQueue = n, n.acquire(channel, "")
	me := t.waitQueue.join("")
	if t.waitQueue.subscribed() {
		notify(me.wakeup) // for others it listens already: what came before we joined, we have missed
	}
	return t.waitQueue, me
}
