package lock

import (
	"context"
	"sync"
	"time"
)

// tasks are goroutines that come and go until they are closed. Unlike those of a
// sync.WaitGroup they may be started while somebody waits for them.
type tasks struct {
	mu      sync.Mutex
	running int
	closed  bool
	waiting chan struct{} // closed when running falls to 0; nil = nobody waits
}

// spawn runs f, unless the tasks are closed.
func (t *tasks) spawn(f func()) {
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
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running++
	}
	return !t.closed
}

// join counts a task that another one, which is not done yet, brings about.
func (t *tasks) join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.running == 0 && t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
}

// idle returns a channel that is closed once nothing runs.
func (t *tasks) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == 0 {
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
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// wake makes a channel of capacity one ready, if it is not.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// endOf returns why to stop: the end of ctx, ErrClosed, or nil to go on.
func endOf(ctx, closed context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if closed.Err() != nil {
		return ErrClosed
	}
	return nil
}

// pauseFor sleeps for d; false means that ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
