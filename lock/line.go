package lock

import (
	"slices"
	"sync"
	"time"
)

// line is where the first ones of all identities wait for one key.
type line struct {
	channel string
	users   int  // guarded by notifier.mu, like the next two
	asked   bool // SUBSCRIBE was sent
	dirty   bool // users and asked may disagree

	mu     sync.Mutex
	queue  []chan struct{} // one per waiter; the front is woken first
	timer  *time.Timer
	heard  bool // the server has confirmed the subscription
	closed bool
}

// join puts the caller at the end; the channel it gets becomes ready when it is
// time to try.
func (l *line) join() chan struct{} {
	me := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, me)
	return me
}

// leave takes the caller out. Unless it has the lock for itself now, the next
// one is woken to see for itself: the caller may have taken news with it.
func (l *line) leave(me chan struct{}, won bool) {
	l.mu.Lock()
	l.queue = slices.DeleteFunc(l.queue, func(c chan struct{}) bool { return c == me })
	l.mu.Unlock()
	if !won || len(me) > 0 {
		l.news()
	}
}

// news wakes the front.
func (l *line) news() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		wake(l.queue[0])
	}
}

// confirmed notes that from now on nothing is missed; the front looks whether
// something was.
func (l *line) confirmed() {
	l.mu.Lock()
	l.heard = true
	l.mu.Unlock()
	l.news()
}

func (l *line) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
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

