package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// taskGroup counts goroutines until it is closed. Unlike with a sync.WaitGroup, a
// goroutine may start while another waits for all of them. Every call of Lock and
// Unlock counts, so counting takes one atomic operation.
type taskGroup struct {
	state atomic.Int64 // flags, and oneTask for each running task

	mu      sync.Mutex
	waiting chan struct{} // closed when no task runs; nil = no goroutine waits
	last    *attempt      // attempts in progress: the last of a linked list
}

const (
	tasksClosed  = 1 << iota // flag of taskGroup.state: no further task begins
	tasksAwaited             // flag of taskGroup.state: waiting is not nil
	oneTask
)

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
	if !t.begin() {
		return false
	}
	t.mu.Lock()
	closed := a.base.client.isClosed() // under t.mu: Close looks for attempts after it
	if !closed {
		a.prev, t.last = t.last, a
		if a.prev != nil {
			a.prev.next = a
		}
	}
	t.mu.Unlock()
	if closed {
		t.done()
	}
	return !closed
}

func (t *taskGroup) endAttempt(a *attempt) {
	t.mu.Lock()
	if a.prev != nil {
		a.prev.next = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		t.last = a.prev
	}
	t.mu.Unlock()
	*a = attempt{}
	t.done()
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
	if t.state.Add(oneTask)&tasksClosed != 0 {
		t.done()
		return false
	}
	return true
}

// add counts a task on behalf of another task that is not done, or one that was
// counted before.
func (t *taskGroup) add() { t.state.Add(oneTask) }

func (t *taskGroup) done() {
	if s := t.state.Add(-oneTask); s < oneTask && s&tasksAwaited != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.endWaitLocked()
	}
}

// endWaitLocked closes waiting if no task runs. The caller holds t.mu.
func (t *taskGroup) endWaitLocked() {
	if t.waiting != nil && t.state.Load() < oneTask {
		t.state.And(^tasksAwaited)
		close(t.waiting)
		t.waiting = nil
	}
}

// idle returns a channel that is closed when no task runs.
func (t *taskGroup) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = make(chan struct{})
	}
	t.state.Or(tasksAwaited)
	waiting := t.waiting
	t.endWaitLocked()
	return waiting
}

// close lets no further task begin.
func (t *taskGroup) close() { t.state.Or(tasksClosed) }

// notify makes a channel of capacity 1 ready.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stopCause returns why to stop: ctx.Err(), ErrClosed, or nil to continue.
func stopCause(ctx context.Context, c *Client) error {
	if err := ctx.Err(); err != nil || !c.isClosed() {
		return err
	}
	return ErrClosed
}

// sleep sleeps for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// sleep sleeps for d, or until ctx ends or the client is closed.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	over := make(chan struct{})
	defer time.AfterFunc(d, func() { close(over) }).Stop()
	_ = c.await(ctx, over, nil)
}

// broadcast wakes all goroutines that wait for its next event.
type broadcast struct {
	mu      sync.Mutex
	waiting chan struct{} // closed by the next event; nil = no goroutine waits
}

// next returns a channel that the next event closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
