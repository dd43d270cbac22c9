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
	last    *flight       // those that are under way, linked from the last one on
}

// flight is an attempt at a lock that is under way: a task that Close has taken back.
type flight struct {
	target *target
	token  string
	until  time.Time // by then what it may have taken has expired

	before, after *flight
}

// takeOff counts a flight, until it has landed, unless its client or the tasks are
// closed. The record is the caller's, who may use it again after land.
func (t *tasks) takeOff(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || f.target.client.isClosed() {
		return false
	}
	t.running++
	f.before, t.last = t.last, f
	if f.before != nil {
		f.before.after = f
	}
	return true
}

func (t *tasks) land(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.before != nil {
		f.before.after = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	} else {
		t.last = f.before
	}
	*f = flight{}
	t.ended()
}

// flights returns copies of those of a client, of which there will be no more.
func (t *tasks) flights(c *Client) []flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []flight
	for f := t.last; f != nil; f = f.before {
		if f.target.client.isOf(c) {
			all = append(all, *f)
		}
	}
	return all
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

// join counts a task that another one, which is not done yet, brings about, or that
// was counted before.
func (t *tasks) join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended()
}

// ended counts out a task. Called with t.mu held.
func (t *tasks) ended() {
	t.running--
	if t.running <= 0 && t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
}

// idle returns a channel that is closed once nothing runs.
func (t *tasks) idle() <-chan struct{} {
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
func endOf(ctx context.Context, c *Client) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isClosed() {
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

// pauseFor sleeps for d, or until ctx or the client ends.
func (c *Client) pauseFor(ctx context.Context, d time.Duration) {
	closing, through := c.closing()
	defer through()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closing.Done():
	}
}
