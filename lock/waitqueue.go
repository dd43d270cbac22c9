package lock

import (
	"slices"
	"sync"
	"time"
)

// waitQueue is where the first ones of all identities wait for one key.
type waitQueue struct {
	channel        string
	processChannel string // where fair locks are handed to waiters of this process; empty = none waits. Guarded by notifier.mu, like the next three
	users          int
	idlePeriods    int      // how often it was left by the last of them
	subscriptions  []string // SUBSCRIBE was sent
	dirty          bool     // users and asked may disagree

	mu               sync.Mutex
	queue            []*waiter // the front is woken first
	timer            *time.Timer
	freeConfirmed    bool // the server has confirmed the subscription to channel
	processConfirmed bool // and that to own
	closed           bool

	heartbeats     int // how many waiters need signs of life
	heartbeatTimer *time.Timer
}

// waiter is a waiter in a line.
type waiter struct {
	wakeup chan struct{} // capacity 1: ready when it is time to try
	token  string        // by which a fair lock is handed over; else empty
	grant  grant         // of that; guarded by line.mu
}

// join puts the caller at the end. Waiters for a fair lock give the token that
// stands in the server's queue for them.
func (q *waitQueue) join(token string) *waiter {
	w := &waiter{wakeup: make(chan struct{}, 1), token: token}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, w)
	return w
}

// leave takes the caller out. Unless it has the lock for itself now, the next
// one is woken to see for itself: the caller may have taken news with it.
func (q *waitQueue) leave(w *waiter, won bool) {
	q.mu.Lock()
	q.queue = slices.DeleteFunc(q.queue, func(other *waiter) bool { return other == w })
	q.mu.Unlock()
	if !won || len(w.wakeup) > 0 {
		q.wakeFirst()
	}
}

// wakeFirst wakes the front.
func (q *waitQueue) wakeFirst() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 0 {
		notify(q.queue[0].wakeup)
	}
}

// nextMessage is the message to the process of the first waiter for a fair lock
// that was handed to somebody, who has yet to claim it.
const nextMessage = "next"

// onMessage takes in a message. Most say that the lock is free; those to ourselves
// name the waiter it was handed to, or say that one of ours comes next: then there
// is nothing to see until the one before has had the time to claim the lock.
func (q *waitQueue) onMessage(channel, message string) {
	switch {
	case channel == q.channel:
		q.wakeFirst()
	case message == nextMessage:
		q.wakeAfter(claimTimeout + time.Millisecond)
	default:
		q.wakeToken(message)
	}
}

// wakeToken wakes the waiter with that token, if it has not left.
func (q *waitQueue) wakeToken(token string) { q.handTo(token, grant{}) }

// handTo wakes the waiter with that token, if it has not left, with what it was
// granted.
func (q *waitQueue) handTo(token string, g grant) (here bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.queue, func(w *waiter) bool { return w.token == token })
	if i < 0 {
		return false
	}
	if g.ttl > 0 {
		q.queue[i].grant = g
	}
	notify(q.queue[i].wakeup)
	return true
}

// grantFor returns what a waiter was granted.
func (q *waitQueue) grantFor(w *waiter) grant {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.grant
}

// tokens returns the tokens of those who wait for a fair lock.
func (q *waitQueue) tokens() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var tokens []string
	for _, w := range q.queue {
		if w.token != "" {
			tokens = append(tokens, w.token)
		}
	}
	return tokens
}

// channels returns those that the line listens to. Called with notifier.mu held.
func (q *waitQueue) channels() []string {
	if q.processChannel == "" {
		return []string{q.channel}
	}
	return []string{q.channel, q.processChannel}
}

// onSubscribed notes that from now on nothing is missed on a channel. The front looks
// whether something was, and so does everybody who waits to be named.
func (q *waitQueue) onSubscribed(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if channel == q.channel {
		q.freeConfirmed = true
	} else {
		q.processConfirmed = true
	}
	for i, w := range q.queue {
		if w.token != "" && q.freeConfirmed && q.processConfirmed || w.token == "" && i == 0 {
			notify(w.wakeup)
		}
	}
}

func (q *waitQueue) subscribed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freeConfirmed
}

// subscribedBoth reports whether waiters for a fair lock can be told of their turn.
func (q *waitQueue) subscribedBoth() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freeConfirmed && q.processConfirmed
}

// wakeAfter wakes the front after d, unless told otherwise meanwhile.
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
