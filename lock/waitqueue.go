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
	idleSpells     int      // how often it was left by the last of them
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
func (l *waitQueue) join(token string) *waiter {
	me := &waiter{wakeup: make(chan struct{}, 1), token: token}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, me)
	return me
}

// leave takes the caller out. Unless it has the lock for itself now, the next
// one is woken to see for itself: the caller may have taken news with it.
func (l *waitQueue) leave(me *waiter, won bool) {
	l.mu.Lock()
	l.queue = slices.DeleteFunc(l.queue, func(p *waiter) bool { return p == me })
	l.mu.Unlock()
	if !won || len(me.wakeup) > 0 {
		l.wakeFirst()
	}
}

// wakeFirst wakes the front.
func (l *waitQueue) wakeFirst() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		notify(l.queue[0].wakeup)
	}
}

// nextMessage is the message to the process of the first waiter for a fair lock
// that was handed to somebody, who has yet to claim it.
const nextMessage = "next"

// onMessage takes in a message. Most say that the lock is free; those to ourselves
// name the waiter it was handed to, or say that one of ours comes next: then there
// is nothing to see until the one before has had the time to claim the lock.
func (l *waitQueue) onMessage(channel, message string) {
	switch {
	case channel == l.channel:
		l.wakeFirst()
	case message == nextMessage:
		l.wakeAfter(claimTimeout + time.Millisecond)
	default:
		l.wakeToken(message)
	}
}

// wakeToken wakes the waiter with that token, if it has not left.
func (l *waitQueue) wakeToken(token string) { l.handTo(token, grant{}) }

// handTo wakes the waiter with that token, if it has not left, with what it was
// granted.
func (l *waitQueue) handTo(token string, g grant) (here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.queue, func(p *waiter) bool { return p.token == token })
	if i < 0 {
		return false
	}
	if g.ttl > 0 {
		l.queue[i].grant = g
	}
	notify(l.queue[i].wakeup)
	return true
}

// grantFor returns what a waiter was granted.
func (l *waitQueue) grantFor(me *waiter) grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return me.grant
}

// tokens returns the tokens of those who wait for a fair lock.
func (l *waitQueue) tokens() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var tokens []string
	for _, p := range l.queue {
		if p.token != "" {
			tokens = append(tokens, p.token)
		}
	}
	return tokens
}

// channels returns those that the line listens to. Called with notifier.mu held.
func (l *waitQueue) channels() []string {
	if l.processChannel == "" {
		return []string{l.channel}
	}
	return []string{l.channel, l.processChannel}
}

// onSubscribed notes that from now on nothing is missed on a channel. The front looks
// whether something was, and so does everybody who waits to be named.
func (l *waitQueue) onSubscribed(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if channel == l.channel {
		l.freeConfirmed = true
	} else {
		l.processConfirmed = true
	}
	for i, p := range l.queue {
		if p.token != "" && l.freeConfirmed && l.processConfirmed || p.token == "" && i == 0 {
			notify(p.wakeup)
		}
	}
}

func (l *waitQueue) subscribed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freeConfirmed
}

// subscribedBoth reports whether waiters for a fair lock can be told of their turn.
func (l *waitQueue) subscribedBoth() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freeConfirmed && l.processConfirmed
}

// wakeAfter wakes the front after d, unless told otherwise meanwhile.
func (l *waitQueue) wakeAfter(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.wakeFirst)
	default:
		l.timer.Reset(d)
	}
}

func (l *waitQueue) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
