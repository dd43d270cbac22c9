package lock

import (
	"context"
	"sync"
	"time"
)

// taskGroup counts goroutines until it is closed. Unlike with a sync.WaitGroup, a
// goroutine may start while another waits for all of them.
type taskGroup struct {
	mu      sync.Mutex
	running int
	closed  bool
	waiting chan struct{} // closed when running falls to 0; nil = no goroutine waits
	last    *attempt      // attempts in progress: the last of a linked list
}

// attempt is an attempt to acquire a lock that is in progress. It counts as a task.
// Close undoes it.
type attempt struct {
	base  *base
	token string
	until time.Time // a lock that the attempt may have acquired has expired by then

	prev, next *attempt
}

// beginAttempt adds an attempt. It returns false if its client or the group is closed.
// The caller owns a and may reuse it after endAttempt.
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

// attempts returns copies of the attempts in progress of a closed client.
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

// spawn runs f in a goroutine. If the group is closed, it does nothing.
func (t *taskGroup) spawn(f func()) {
	if !t.begin() {
		return
	}
	go func() {
		defer t.done()
		f()
	}()
}

// begin counts a task until done, without a goroutine of its own. It returns false if
// the group is closed.
func (t *taskGroup) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running++
	}
	return !t.closed
}

// add counts a task on behalf of another task that is not done, or one that was
// counted before.
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

// doneLocked ends a task. The caller holds t.mu.
func (t *taskGroup) doneLocked() {
	t.running--
	if t.running <= 0 && t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
}

// idle returns a channel that is closed when no task runs.
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

// close lets no further task begin.
func (t *taskGroup) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// notify makes a channel of capacity 1 ready.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stopCause returns why to stop: ctx.Err(), ErrClosed, or nil to continue.
func stopCause(ctx context.Context, c *Client) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isClosed() {
		return ErrClosed
	}
	return nil
}

// sleep sleeps for d. It returns false if ctx ends first.
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

// sleep sleeps for d, or until ctx ends or the client is closed.
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
