package lock

import (
	"context"
	"math/rand/v2"
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

// maxUndos is the number of undos in progress with which no further attempt begins. undoPause
// is the first pause between two releases of undo. It doubles each time, up to maxUndoPause.
const (
	maxUndos     = 1000
	undoPause    = 10 * time.Millisecond
	maxUndoPause = time.Second
)

// awaitUndos waits while there are maxUndos. On a cluster it does not: one dead node must not
// stop the locks of the others.
func (c *core) awaitUndos(ctx context.Context) error {
	if c.transport.Clustered() {
		return nil
	}
	if !c.undos.TryAcquire(1) {
		if err := c.undos.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	c.undos.Release(1)
	return nil
}

// undo releases a lock whose acquire has an unknown outcome: see releaseUntil.
func (c *core) undo(p protocol, token string, until time.Time, acquire future) {
	c.releaseUntil(p, token, until, acquire, func(err error) {
		c.emit(Event{Kind: Undone, At: time.Now(), Key: p.lockKey(), Token: token, Err: err})
	})
}

// releaseUntil releases a lock that a token may have. It sends the first release, behind
// the acquire, before it returns. In the background it repeats the release until the server
// has answered twice, or until until: by then a key that was acquired immediately has
// expired by itself. Then it calls done, with an error if two answers are missing. A network
// that delivers the acquire of a closed connection even later leaves the key for one TTL,
// like a holder that has crashed.
//
// One answer is enough on the connection of the acquire. After a connection has
// broken, a release may overtake an acquire that is still in the server's buffers;
// hence the second. On a cluster, go-redis sends an acquire again if it is redirected,
// and releases may overtake it, too. If acquire is not nil, only releases after its
// end count there.
func (c *core) releaseUntil(p protocol, token string, until time.Time, acquire future, done func(error)) {
	if u, ok := p.(interface{ undo() }); ok {
		u.undo()
		return
	}
	first := p.release(c.alive, token, 0)
	counts := c.undos.TryAcquire(1)
	c.tasks.spawn(func() {
		if counts {
			defer c.undos.Release(1)
		}
		ctx, cancel := context.WithDeadline(c.alive, until)
		defer cancel()
		release := first
		if a, ok := acquire.(interface{ waitLast(context.Context) }); ok && c.transport.Clustered() {
			a.waitLast(ctx)
			release = p.release(c.alive, token, 0)
		}
		pause := undoPause
		for answers := 0; ; release = p.release(c.alive, token, 0) {
			reply, err := release.wait(ctx)
			if err == nil || !transient(err) {
				answers++
			}
			c.emitHandOver(p.lockKey(), token, reply)
			if answers == 2 || !sleep(ctx, randomBetween(pause/2, pause)) {
				done(ctx.Err())
				return
			}
			pause = min(2*pause, maxUndoPause)
		}
	})
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

// randomBetween returns a random duration in [low, high).
func randomBetween(low, high time.Duration) time.Duration {
	return low + random(high-low)
}

// random returns a random duration in [0, n). Tests that repeat an order replace it.
var random = rand.N[time.Duration]

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
