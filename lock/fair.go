package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	fairAcquire   = newScript("waiters_common", "tell", "fair_common", "fair_acquire")
	fairRelease   = newScript("waiters_common", "tell", "waiters_release", "fair_common", "fair_release")
	fairHeartbeat = newScript("tell", "fair_common", "fair_heartbeat")
)

const (
	// waiterTTL is how long a waiter stays in the queue without a heartbeat.
	waiterTTL = 6 * time.Second
	// heartbeatInterval is the time between the heartbeats of a process.
	heartbeatInterval = waiterTTL / 3
	// claimTimeout is how long a waiter has to claim a lock that was handed to it.
	// Then the next waiter gets it.
	claimTimeout = time.Second
	// heartbeatBatch is the number of waiters in one heartbeat command.
	heartbeatBatch = 500
)

// Fair is a mutex that serves its waiters in order of arrival, also across processes.
// A release hands the lock to the first waiter, so the lock is never free while a
// client waits. A hand-over sends two messages, however long the queue is: one to the
// process of the next holder, and one to the process of the waiter behind it, which
// checks that the next holder claims the lock.
//
// A waiter that dies costs the waiters behind it no time, because the server knows
// that its process no longer subscribes. A waiter that is stopped costs them 1 s if
// its turn comes within 6 s, and nothing later. On a cluster a dead waiter costs the
// same as a stopped one. TryLock does not queue: it succeeds only if the lock is free
// and no client waits.
//
// On the server the lock is the same key as a [Mutex] and excludes the same clients.
// Such clients ignore the queue: one that finds the lock free right after a crash gets
// it before the waiters. Two further keys hold the queue and the heartbeats of the
// waiters; they vanish with the last waiter.
type Fair struct{ base }

// Fair returns the lock with that name. It sends nothing. Lock and TryLock report
// invalid options as [ErrArgument]. [Options.Wait] must be zero, because waiters of a
// fair lock receive messages.
func (c *Client) Fair(key string, o Options) *Fair {
	p := newFairProtocol(c.core, key, o.Fence)
	f := &Fair{c.newBase(key, o, p)}
	p.grant = grantTTL(f.opts)
	f.refuse("Wait", o.Wait != (Wait{}), "a fair lock")
	f.argErr = cmp.Or(f.argErr, c.checkCompanions(key))
	return f
}

// TryLock implements [Locker].
func (f *Fair) TryLock(ctx context.Context) (*Lease, error) {
	return f.tryLock(ctx, &request{try: f.attempt})
}

func (f *Fair) attempt(ctx context.Context, r *request) (_ *Lease, err error) {
	if r.token, err = f.client.newProcessToken(f.client.owner, fairToken); err != nil {
		return nil, err
	}
	h, err := f.acquireOnce(ctx, r)
	if err != nil {
		return nil, err
	}
	return newLease(h), nil
}

// Lock implements [Locker]. If the lock is held, Lock joins the queue on the server at
// once. If ctx ends, it leaves the queue.
func (f *Fair) Lock(ctx context.Context) (*Lease, error) {
	return f.lockBy(ctx, &request{}, f.acquireWaiting)
}

func (f *Fair) acquireWaiting(ctx context.Context, r *request) (*Lease, error) {
	channel := f.protocol.(*fairProtocol).processChannel()
	queue := f.client.notifier.reuse(channel)
	if queue == nil {
		lease, err := f.attempt(ctx, r)
		if !errors.Is(err, ErrHeld) {
			return lease, err
		}
		queue = f.client.notifier.use(f.protocol.channel(), channel)
	}
	defer f.client.notifier.endUse(queue)
	return f.waitInQueue(ctx, r, queue)
}

// waitInQueue waits in the server's queue. After an error with an unknown outcome it
// joins again with a new token.
func (f *Fair) waitInQueue(ctx context.Context, r *request, queue *waitQueue) (*Lease, error) {
	backoff := minBackoff
	for waited := false; ; waited = true {
		w, err := f.newWaiter(r, queue)
		if err != nil {
			return nil, err
		}
		lease, err := w.lock(ctx)
		if err == nil || !transient(err) || !waited && w.held == nil || stopCause(ctx, f.client) != nil {
			return lease, err
		}
		if !sleep(ctx, backoff) {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", f.key, err, ctx.Err())
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// fairWaiter is one token in the server's queue.
type fairWaiter struct {
	*base       // of the lock
	request     *request
	queue       *waitQueue
	token       string
	lastRequest future // nil = none yet
	held        error  // last refusal; nil = none yet
}

func (f *Fair) newWaiter(r *request, queue *waitQueue) (*fairWaiter, error) {
	token, err := f.client.newProcessToken(f.client.owner, fairToken)
	if err != nil {
		return nil, err
	}
	return &fairWaiter{base: &f.base, request: r, queue: queue, token: token}, nil
}

// lock waits for the lock until ctx ends. If it returns an error, the token has left
// the queue.
func (w *fairWaiter) lock(ctx context.Context) (lease *Lease, err error) {
	a := &w.request.current
	*a = attempt{base: w.base, token: w.token, until: time.Now().Add(w.opts.keyTTL())}
	if !w.client.tasks.beginAttempt(a) {
		return nil, describe("acquire", w.key, ErrClosed)
	}
	defer w.client.tasks.endAttempt(a)
	place := w.queue.join(w.token)
	stopBeating := w.queue.startHeartbeat(w.client, w.protocol.(*fairProtocol))
	defer func() {
		stopBeating()
		w.queue.leave(place, err == nil)
		w.queue.unregister() // as a waiter for a mutex
	}()
	for {
		if lease, err = w.tryAcquire(ctx, place); !errors.Is(err, ErrHeld) {
			break
		}
		w.held = err
		if err = w.waitTurn(ctx, place); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", w.key, w.held, err)
			break
		}
	}
	if err != nil {
		w.client.undo(w.protocol, w.token, time.Now().Add(w.opts.keyTTL()), w.lastRequest)
	}
	return lease, err
}

// tryAcquire acquires the lock if it is the waiter's turn. With a grant that is not
// too old it does not ask the server.
func (w *fairWaiter) tryAcquire(ctx context.Context, place *waiter) (*Lease, error) {
	g := w.queue.grantFor(place)
	if g.ttl == 0 || g.ttl != grantTTL(w.opts) || time.Since(g.sent) > w.opts.TTL/2 {
		return w.askServer(ctx)
	}
	return w.lease(w.startHold(w.request, w.token, 0, g.sent))
}

// askServer asks for the lock and, if it is held, for a place in the queue. Before the
// subscriptions are confirmed the first request does not queue, because a hand-over
// would not reach the waiter.
func (w *fairWaiter) askServer(ctx context.Context) (*Lease, error) {
	w.request.attempts++
	sent := time.Now()
	ttl := waiterTTL
	if !w.queue.subscribedBoth() && w.held == nil {
		ttl = 0
	}
	w.lastRequest = w.protocol.(*fairProtocol).enqueue(ctx, w.token, w.opts.keyTTL(), ttl)
	reply, err := w.lastRequest.wait(ctx)
	var held *HeldError
	var fence int64
	if err == nil {
		held, fence, err = parseAcquire(w.key, reply)
	}
	if ttl > 0 && (outcomeUnknown(err) || held != nil && !isFair(held.Token)) {
		w.queue.noteRegistered(&w.protocol.(*fairProtocol).scriptProtocol)
	}
	if err == nil && held != nil && w.mustPoll(reply) {
		w.queue.wakeAfter(pollInterval(held, w.queue.subscribedBoth(), 0))
	}
	return w.lease(w.settle(ctx, w.request, w.token, sent, held, fence, err))
}

// lease returns the lease of a hold, if there is one.
func (w *fairWaiter) lease(h *hold, err error) (*Lease, error) {
	if err != nil {
		return nil, err
	}
	w.queue.wakeAfter(pollInterval(&HeldError{Token: w.token, TTL: w.opts.keyTTL()}, w.queue.subscribedBoth(), 0))
	return newLease(h), nil
}

// mustPoll reports whether a refused waiter must watch the holder: the first waiter in
// the queue, and a waiter that is not in it. The others receive a message when they
// become the first.
func (w *fairWaiter) mustPoll(refusal any) bool {
	fields, _ := refusal.([]any)
	return len(fields) > 2 || w.held != nil || !w.queue.subscribedBoth()
}

// waitTurn waits until it is time to ask again. Without confirmed subscriptions this
// is after foreignPollInterval at the latest.
func (w *fairWaiter) waitTurn(ctx context.Context, place *waiter) error {
	if w.queue.subscribedBoth() {
		return w.client.await(ctx, place.wakeup, nil)
	}
	timer := time.AfterFunc(foreignPollInterval, func() { notify(place.wakeup) })
	defer timer.Stop()
	return w.client.await(ctx, place.wakeup, nil)
}

// fairProtocol stores the lock as that of a [Mutex], and a queue in two further keys.
type fairProtocol struct {
	scriptProtocol
	keys  []string      // the lock, its queue, the heartbeats of its waiters; its fence, if it has one
	grant time.Duration // TTL of a lock that is handed over within the process; 0 = claimTimeout
}

func newFairProtocol(c *core, key string, fence bool) *fairProtocol {
	keys := []string{key, companionKey(key, "queue"), companionKey(key, "alive")}
	if fence {
		keys = append(keys, companionKey(key, "fence"))
	}
	return &fairProtocol{scriptProtocol: *newScriptProtocol(mutexScripts, c, key, false), keys: keys}
}

// sendScript sends a script with the arguments that all fair scripts share.
func (p *fairProtocol) sendScript(ctx context.Context, s *script, keys []string, args ...any) *call {
	return s.send(ctx, p.transport, keys, append([]any{p.freeChannel, claimTimeout.Milliseconds(), p.publishCounts()}, args...)...)
}

// enqueue asks for the lock and, if queueTTL is positive, for a place in the queue.
func (p *fairProtocol) enqueue(ctx context.Context, token string, ttl, queueTTL time.Duration) future {
	return p.sendScript(ctx, fairAcquire, p.keys, token, ttl.Milliseconds(), queueTTL.Milliseconds(), p.core.process)
}

func (p *fairProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return p.enqueue(ctx, token, ttl, 0)
}

func (p *fairProtocol) release(ctx context.Context, token string, _ int) future {
	g := grant{sent: time.Now(), ttl: p.grant}
	ttl := cmp.Or(p.grant, claimTimeout)
	return &handover{p.sendScript(ctx, fairRelease, p.keys[:3], token, processOf(p.core.id), ttl.Milliseconds()), &p.scriptProtocol, g}
}

// grant is a lock that was handed over within the process with its full TTL. The next
// holder need not ask the server.
type grant struct {
	sent time.Time
	ttl  time.Duration // 0 = the lock must be claimed
}

// grantTTL returns the TTL of a grant. It is 0 if the next holder must claim the lock,
// because the claim raises the fence or asks the replicas.
func grantTTL(o Options) time.Duration {
	if o.Fence || o.Replicas > 0 {
		return 0
	}
	return o.keyTTL()
}

// heartbeat keeps the tokens in the queue for another waiterTTL.
func (p *fairProtocol) heartbeat(ctx context.Context, tokens []string) future {
	args := make([]any, 0, 1+len(tokens))
	args = append(args, waiterTTL.Milliseconds())
	for _, token := range tokens {
		args = append(args, token)
	}
	return p.sendScript(ctx, fairHeartbeat, p.keys[:3], args...)
}
