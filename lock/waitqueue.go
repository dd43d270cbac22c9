package lock

import (
	"context"
	"slices"
	"strings"
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

// waitQueue is the queue in which the first waiters of all clients of a core wait for
// one key.
type waitQueue struct {
	channel        string
	processChannel string      // for messages to this process only; empty = there are none
	users          int         // guarded by notifier.mu, like idleSince and idleTimer
	idleSince      time.Time   // if users is 0
	idleTimer      *time.Timer // calls notifier.dropIdle; nil before the first idle time

	mu               sync.Mutex
	queue            []*waiter // the first is woken first
	timer            *time.Timer
	freeConfirmed    bool // the server has confirmed the subscription to channel
	processConfirmed bool // the server has confirmed the subscription to processChannel
	closed           bool
	registration     registration
	freedAt          time.Time // when the last message on channel came
	refusedTicket    int64     // of the last refused reader; 0 = none
	setCredit        int       // of SET NX; guarded by mu, like setSkipped
	setSkipped       int       // waiters that did not ask with SET NX
	handedTo         string    // last 12 characters of the process that was handed the lock last, if another one has said so
	handedAt         time.Time // when it has said so
}

// waiter is one waiter in a waitQueue.
type waiter struct {
	wakeup  chan struct{} // capacity 1; ready when the waiter should try
	inOrder bool          // it has its own place in the queue of a fair lock
	token   string        // to which a release may hand the lock; empty = none. Guarded by waitQueue.mu, like grant
	grant   grant
}

// join adds a waiter at the end.
func (q *waitQueue) join(inOrder bool) *waiter {
	w := &waiter{wakeup: make(chan struct{}, 1), inOrder: inOrder}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, w)
	return w
}

// leave removes w. Unless w has won an exclusive lock, the next waiter is woken,
// because w may have received its message.
func (q *waitQueue) leave(w *waiter, won bool) {
	q.mu.Lock()
	q.queue = slices.DeleteFunc(q.queue, func(other *waiter) bool { return other == w })
	q.mu.Unlock()
	if !won || len(w.wakeup) > 0 {
		q.wakeFirst()
	}
}

// wakeFirst wakes the first waiter.
func (q *waitQueue) wakeFirst() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 0 {
		notify(q.queue[0].wakeup)
	}
}

// nextMessage begins a message to the process of another waiter when a token was handed the
// lock, and has yet to claim it. The process of the token follows.
const nextMessage = "next "

// onMessage handles a message. On channel it means that the lock is free. On
// processChannel it is freeMessage, moreMessage, the token of the waiter that was handed the lock,
// ownMessage, which repeats the reply to a release, or nextMessage: then the first waiter
// tries when the time to claim the lock is over.
func (q *waitQueue) onMessage(channel, message string) {
	switch {
	case channel == q.channel:
		q.onFree()
	case message == ownMessage:
	case message == freeMessage, message == moreMessage:
		q.onWoken(message == moreMessage)
	case strings.HasPrefix(message, nextMessage):
		q.watchClaim(message[len(nextMessage):])
	default:
		q.handTo(message, grant{})
	}
}

// watchClaim has the first waiter try when the time to claim the lock is over, which a
// process was handed.
func (q *waitQueue) watchClaim(process string) {
	q.noteClaimant(process)
	q.wakeAfter(claimTimeout + time.Millisecond)
}

// noteClaimant notes which process has to claim the lock.
func (q *waitQueue) noteClaimant(process string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.handedTo, q.handedAt = process, time.Now()
}

// claimant returns the process that had to claim the lock a moment ago; empty = none.
func (q *waitQueue) claimant() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.handedAt) > 2*claimTimeout {
		return ""
	}
	return q.handedTo
}

// onFree wakes the first waiter, because a release has woken all processes.
func (q *waitQueue) onFree() {
	q.mu.Lock()
	q.freedAt = time.Now()
	q.mu.Unlock()
	q.wakeFirst()
}

// setReadersTicket notes the ticket of a refused reader.
func (q *waitQueue) setReadersTicket(ticket int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusedTicket = ticket
}

// readersTicket returns the ticket for a reader that waits since began: that of the last
// refused reader, if both waited when the last message came; else 0.
func (q *waitQueue) readersTicket(began time.Time) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.freedAt.Before(began) {
		return 0
	}
	return q.refusedTicket
}

// registrationNow returns what the process knows about its registration.
func (q *waitQueue) registrationNow() registration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.registration
}

// onWoken wakes the first waiter, because a release has woken this process. Without a
// waiter, another process is woken.
func (q *waitQueue) onWoken(more bool) {
	q.mu.Lock()
	p := q.registration.protocol
	q.registration.registered = false
	q.registration.woken, q.registration.more = len(q.queue) > 0, more
	if q.registration.woken {
		notify(q.queue[0].wakeup)
		p = nil
	}
	q.mu.Unlock()
	if p != nil {
		p.giveUp(p.core.process)
	}
}

// unregister ends the registration of a process that has no waiters left. It sends the
// request before a later waiter can register.
func (q *waitQueue) unregister() {
	q.mu.Lock()
	defer q.mu.Unlock()
	reg := &q.registration
	if len(q.queue) > 0 || reg.protocol == nil || !reg.registered && !reg.woken {
		return // a writer that claims may be woken before it has registered; it withdraws
	}
	*reg = registration{protocol: reg.protocol}
	reg.protocol.giveUp(reg.protocol.core.process)
}

// inheritTicket sets the ticket of a registration that has none.
func (q *waitQueue) inheritTicket(ticket int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.registration.ticket == 0 {
		q.registration.ticket = ticket
	}
}

// asksBySet reports whether a new waiter asks with SET NX before it registers.
func (q *waitQueue) asksBySet() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.setCredit > 0 {
		return true
	}
	q.setSkipped++
	return q.setSkipped%setProbe == 1
}

// noteSet notes whether an attempt that began with SET NX has acquired the lock.
func (q *waitQueue) noteSet(acquired bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if acquired {
		q.setCredit = min(q.setCredit+1, maxSetCredit)
	} else {
		q.setCredit = max(q.setCredit-1, 0)
	}
}

// setToken sets the token to which a release may hand the lock.
func (q *waitQueue) setToken(w *waiter, token string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.token = token
}

// handTo wakes the waiter with token and passes it the grant. It returns false if the
// waiter has left.
func (q *waitQueue) handTo(token string, g grant) (here bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.queue, func(w *waiter) bool { return w.token == token })
	if i >= 0 {
		q.queue[i].grant = g
		notify(q.queue[i].wakeup)
	}
	return i >= 0
}

// grantFor returns the grant of the waiter with token.
func (q *waitQueue) grantFor(token string) grant {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.queue {
		if w.token == token {
			return w.grant
		}
	}
	return grant{}
}

// wakeInOrder wakes all waiters for a fair lock.
func (q *waitQueue) wakeInOrder() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.queue {
		if w.inOrder {
			notify(w.wakeup)
		}
	}
}

// channels returns the channels of the queue. The server confirms the last one last.
func (q *waitQueue) channels() []string {
	if q.processChannel == "" {
		return []string{q.channel}
	}
	return []string{q.processChannel, q.channel}
}

// onSubscribed notes that the server has confirmed a subscription. Earlier messages
// may have been lost, so it wakes the first waiter and all waiters for a fair lock.
func (q *waitQueue) onSubscribed(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if channel == q.channel {
		q.freeConfirmed = true
	} else {
		q.processConfirmed = true
	}
	for i, w := range q.queue {
		if w.inOrder && q.freeConfirmed && q.processConfirmed || !w.inOrder && i == 0 && channel == q.channel {
			notify(w.wakeup)
		}
	}
}

func (q *waitQueue) subscribed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freeConfirmed
}

// subscribedBoth reports whether a message to this process reaches its waiters.
func (q *waitQueue) subscribedBoth() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freeConfirmed && q.processConfirmed
}

// isFirst reports whether w is the first waiter.
func (q *waitQueue) isFirst(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0 && q.queue[0] == w
}

// wakeAfter wakes the first waiter after d. A later call replaces d.
func (q *waitQueue) wakeAfter(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
	case q.timer == nil:
		q.timer = time.AfterFunc(d, q.wakeFirst)
	default:
		q.timer.Reset(d)
	}
}

func (q *waitQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
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
