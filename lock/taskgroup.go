package lock

import (
	"context"
	"sync"
	"time"
)

// taskGroup are goroutines that come and go until they are closed. Unlike those of a
// sync.WaitGroup they may be started while somebody waits for them.
type taskGroup struct {
	mu      sync.Mutex
	running int
	closed  bool
	waiting chan struct{} // closed when running falls to 0; nil = nobody waits
	last    *attempt      // those that are under way, linked from the last one on
}

// attempt is an attempt at a lock that is under way: a task that Close has taken back.
type attempt struct {
	base  *base
	token string
	until time.Time // by then what it may have taken has expired

	prev, next *attempt
}

// beginAttempt counts a flight, until it has landed, unless its client or the tasks are
// closed. The record is the caller's, who may use it again after land.
func (t *taskGroup) beginAttempt(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || a.base.client.isClosed() {
		return false
	}
	t.running++
	a.prev, t.last = t.last, a
	if a.prev != nil {
		a.prev.next = a
	}
	return true
}

func (t *taskGroup) endAttempt(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.prev != nil {
		a.prev.next = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		t.last = a.prev
	}
	*a = attempt{}
	t.doneLocked()
}

// attempts returns copies of those of a client, of which there will be no more.
func (t *taskGroup) attempts(c *Client) []attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []attempt
	for a := t.last; a != nil; a = a.prev {
		if a.base.client.isOf(c) {
			all = append(all, *a)
		}
	}
	return all
}

// spawn runs f, unless the tasks are closed.
func (t *taskGroup) spawn(f func()) {
	if !t.begin() {
		return
	}
	go func() {
		defer t.done()
		f()
	}()
}

// begin counts a task without a goroutine of its own, until done, unless the tasks
// are closed.
func (t *taskGroup) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running++
	}
	return !t.closed
}

// add counts a task that another one, which is not done yet, brings about, or that
// was counted before.
func (t *taskGroup) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *taskGroup) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doneLocked()
}

// doneLocked counts out a task. Called with t.mu held.
func (t *taskGroup) doneLocked() {
	t.running--
	if t.running <= 0 && t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
}

// idle returns a channel that is closed once nothing runs.
func (t *taskGroup) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running <= 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if t.waiting == nil {
		t.waiting = make(chan struct{})
	}
	return t.waiting
}

// close lets nothing more begin.
func (t *taskGroup) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// notify makes a channel of capacity one ready, if it is not.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stopCause returns why to stop: the end of ctx, ErrClosed, or nil to go on.
func stopCause(ctx context.Context, c *Client) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isClosed() {
		return ErrClosed
	}
	return nil
}

// sleep sleeps for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sleep sleeps for d, or until ctx or the client ends.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	closing, done := c.closing()
	defer done()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closing.Done():
	}
}
