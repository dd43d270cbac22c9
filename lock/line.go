package lock

import (
	"slices"
	"sync"
	"time"
)

// line is where the first ones of all identities wait for one key.
type line struct {
	channel string
	own     string // where fair locks are handed to waiters of this process; empty = none waits. Guarded by notifier.mu, like the next three
	users   int
	unused  int      // how often it was left by the last of them
	asked   []string // SUBSCRIBE was sent
	dirty   bool     // users and asked may disagree

	mu     sync.Mutex
	queue  []*place // the front is woken first
	timer  *time.Timer
	heard  bool // the server has confirmed the subscription to channel
	named  bool // and that to own
	closed bool

	beating int // how many waiters need signs of life
	heart   *time.Timer
}

// place is a waiter in a line.
type place struct {
	news  chan struct{} // capacity 1: ready when it is time to try
	token string        // by which a fair lock is handed over; else empty
	grant grant         // of that; guarded by line.mu
}

// join puts the caller at the end. Waiters for a fair lock give the token that
// stands in the server's queue for them.
func (l *line) join(token string) *place {
	me := &place{news: make(chan struct{}, 1), token: token}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, me)
	return me
}

// leave takes the caller out. Unless it has the lock for itself now, the next
// one is woken to see for itself: the caller may have taken news with it.
func (l *line) leave(me *place, won bool) {
	l.mu.Lock()
	l.queue = slices.DeleteFunc(l.queue, func(p *place) bool { return p == me })
	l.mu.Unlock()
	if !won || len(me.news) > 0 {
		l.news()
	}
}

// news wakes the front.
func (l *line) news() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		wake(l.queue[0].news)
	}
}

// nextInLine is the message to the process of the first waiter for a fair lock
// that was handed to somebody, who has yet to claim it.
const nextInLine = "next"

// hear takes in a message. Most say that the lock is free; those to ourselves
// name the waiter it was handed to, or say that one of ours comes next: then there
// is nothing to see until the one before has had the time to claim the lock.
func (l *line) hear(channel, message string) {
	switch {
	case channel == l.channel:
		l.news()
	case message == nextInLine:
		l.retryIn(claimTime + time.Millisecond)
	default:
		l.wake(message)
	}
}

// wake wakes the waiter with that token, if it has not left.
func (l *line) wake(token string) { l.hand(token, grant{}) }

// hand wakes the waiter with that token, if it has not left, with what it was
// granted.
func (l *line) hand(token string, g grant) (here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.queue, func(p *place) bool { return p.token == token })
	if i < 0 {
		return false
	}
	if g.ttl > 0 {
		l.queue[i].grant = g
	}
	wake(l.queue[i].news)
	return true
}

// granted returns what a waiter was granted.
func (l *line) granted(me *place) grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return me.grant
}

// tokens returns the tokens of those who wait for a fair lock.
func (l *line) tokens() []string {
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
func (l *line) channels() []string {
	if l.own == "" {
		return []string{l.channel}
	}
	return []string{l.channel, l.own}
}

// confirmed notes that from now on nothing is missed on a channel. The front looks
// whether something was, and so does everybody who waits to be named.
func (l *line) confirmed(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if channel == l.channel {
		l.heard = true
	} else {
		l.named = true
	}
	for i, p := range l.queue {
		if p.token != "" && l.heard && l.named || p.token == "" && i == 0 {
			wake(p.news)
		}
	}
}

func (l *line) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// hearsNames reports whether waiters for a fair lock can be told of their turn.
func (l *line) hearsNames() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard && l.named
}

// retryIn wakes the front after d, unless told otherwise meanwhile.
func (l *line) retryIn(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.news)
	default:
		l.timer.Reset(d)
	}
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
