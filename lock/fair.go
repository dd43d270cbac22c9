package lock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	//go:embed fair_common.lua
	fairCommonSource string
	//go:embed fair_acquire.lua
	fairAcquireSource string
	//go:embed fair_release.lua
	fairReleaseSource string
	//go:embed fair_heartbeat.lua
	fairHeartbeatSource string

	fairAcquire   = newScript(fairCommonSource + fairAcquireSource)
	fairRelease   = newScript(fairCommonSource + fairReleaseSource)
	fairHeartbeat = newScript(fairCommonSource + fairHeartbeatSource)
)

const (
	// waiterTTL is how long a waiter keeps its place without a sign of life.
	waiterTTL = 6 * time.Second
	// heartbeatInterval is how often waiters give one, all of a process together.
	heartbeatInterval = waiterTTL / 3
	// claimTimeout is how long a waiter has to claim what it was handed; then it is
	// the next one's turn.
	claimTimeout = time.Second
	// heartbeatBatch is how many waiters give a sign of life in one command.
	heartbeatBatch = 500
)

// Fair is a mutex that serves its waiters in order of arrival, also over many
// processes, and hands the lock from one to the next: it is never free while
// somebody waits. A hand-over takes two messages, however long the queue: one to the
// process of the next holder, and one to that of the waiter behind it, who sees to
// it that the next holder is not a dead one.
//
// A waiter that dies in the queue costs those behind it nothing, since the server
// knows that it does not listen any more. One that stands still costs them 1 s if
// its turn comes within 6 s, and nothing later; on a cluster, so does a dead one.
// TryLock does not queue: it
// succeeds only if nobody holds the lock and nobody waits for it.
//
// On the wire the lock itself is what a [Mutex] is, and excludes the same
// others. They do not know the queue, though: one that finds the lock free in
// the moment after a crash gets in before those who wait. Beside it stand the
// queue and its waiters' signs of life, which vanish with the last waiter.
type Fair struct{ base }

var _ Locker = (*Fair)(nil)

// Fair returns the lock of that name. It sends nothing. Options that cannot work
// are reported as [ErrArgument] by Lock and TryLock; [Options.Wait] is one of
// them, since waiters of a fair lock are told.
func (c *Client) Fair(key string, o Options) *Fair {
	p := newFairProtocol(c.core, key, o.Fence)
	f := &Fair{c.newBase(key, o, p)}
	p.grant = grantTTL(f.opts)
	if f.argErr == nil && o.Wait != (Wait{}) {
		f.argErr = fmt.Errorf("%w: a fair lock has its own way to wait", ErrArgument)
	}
	if f.argErr == nil {
		f.argErr = c.checkCompanions(key)
	}
	return f
}

// TryLock implements [Locker].
func (f *Fair) TryLock(ctx context.Context) (*Lease, error) {
	return f.tryLock(ctx, &request{try: f.attempt})
}

func (f *Fair) attempt(ctx context.Context, r *request) (*Lease, error) {
	h, err := f.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return newLease(h), nil
}

// Lock implements [Locker]. It queues on the server as soon as the lock is found
// held; a waiter whose ctx ends leaves the queue.
func (f *Fair) Lock(ctx context.Context) (*Lease, error) {
	if err := f.check(ctx); err != nil {
		return nil, err
	}
	r := &request{began: time.Now()}
	end := f.countWait(ctx, r)
	channel := f.protocol.(*fairProtocol).processChannel
	queue := f.client.notifier.reuse(channel)
	if queue == nil {
		lease, err := f.attempt(ctx, r)
		if !errors.Is(err, ErrHeld) {
			return end(lease, err)
		}
		queue = f.client.notifier.acquire(f.protocol.channel(), channel)
	}
	defer f.client.notifier.release(queue)
	return end(f.waitInQueue(ctx, r, queue))
}

// waitInQueue stands in the server's queue, again with a new token whenever it is not
// known what became of the old one.
func (f *Fair) waitInQueue(ctx context.Context, r *request, queue *waitQueue) (*Lease, error) {
	backoff := minBackoff
	for waited := false; ; waited = true {
		w, err := f.newWaiter(r, queue)
		if err != nil {
			return nil, err
		}
		lease, err := w.wait(ctx)
		if err == nil || !transient(err) || !waited && w.held == nil || stopCause(ctx, f.client) != nil {
			return lease, err
		}
		if !sleep(ctx, backoff) {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", f.key, err, ctx.Err())
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// fairWaiter is one token that stands in the queue.
type fairWaiter struct {
	*Fair
	request     *request
	queue       *waitQueue
	token       string
	lastRequest future // the newest request; nil = none yet
	held        error  // the newest refusal; nil = none yet
}

func (f *Fair) newWaiter(r *request, queue *waitQueue) (*fairWaiter, error) {
	token, err := newToken(f.client.owner)
	if err != nil {
		return nil, err
	}
	token = strings.TrimSuffix(token, processOf(token)) + processOf(f.client.id)
	return &fairWaiter{Fair: f, request: r, queue: queue, token: token}, nil
}

// processOf returns the end of an id, or of a token. Those who wait for a fair
// lock through one transport share it with its id, so that it tells where to find
// them.
func processOf(id string) string { return id[len(id)-12:] }

// wait waits for the lock until ctx ends. Without it, it leaves the queue.
func (w *fairWaiter) wait(ctx context.Context) (lease *Lease, err error) {
	a := &w.request.current
	*a = attempt{base: &w.base, token: w.token, until: time.Now().Add(w.opts.TTL)}
	if !w.client.tasks.beginAttempt(a) {
		return nil, describe("acquire", w.key, ErrClosed)
	}
	defer w.client.tasks.endAttempt(a)
	place := w.queue.join(w.token)
	stopBeating := w.queue.startHeartbeat(w.client, w.protocol.(*fairProtocol))
	defer func() {
		stopBeating()
		w.queue.leave(place, err == nil)
	}()
	for {
		if lease, err = w.tryAcquire(ctx, place); !errors.Is(err, ErrHeld) {
			err = w.waitError(ctx, w.held, err)
			break
		}
		w.held = err
		if err = w.waitTurn(ctx, place); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", w.key, w.held, err)
			break
		}
	}
	if err != nil {
		w.client.undo(w.protocol, w.token, time.Now().Add(w.opts.TTL), w.lastRequest)
	}
	return lease, err
}

// tryAcquire takes the lock if it is our turn. Who was granted it need not ask.
func (w *fairWaiter) tryAcquire(ctx context.Context, place *waiter) (*Lease, error) {
	g := w.queue.grantFor(place)
	if g.ttl == 0 || g.ttl != grantTTL(w.opts) || time.Since(g.sent) > g.ttl/2 {
		return w.askServer(ctx)
	}
	return w.startLease(0, g.sent)
}

// askServer takes the lock if it is our turn, and queues if not. Until it can be told
// of its turn, a token does not queue: it would be passed over.
func (w *fairWaiter) askServer(ctx context.Context) (*Lease, error) {
	w.request.attempts++
	sent := time.Now()
	ttl := waiterTTL
	if !w.queue.subscribedBoth() && w.held == nil {
		ttl = 0
	}
	w.lastRequest = w.protocol.(*fairProtocol).enqueue(ctx, w.token, w.opts.TTL, ttl)
	reply, err := w.lastRequest.wait(ctx)
	var held *HeldError
	var fence int64
	if err == nil {
		held, fence, err = parseAcquire(w.key, reply)
	}
	if err != nil {
		return nil, w.emitFailure(w.token, describe("acquire", w.key, err))
	}
	if held != nil {
		w.request.held = held
		if w.request.attempts == 1 {
			w.client.emit(Event{Kind: Contended, At: time.Now(), Key: w.key, Owner: w.client.owner})
		}
		if w.mustPoll(reply) {
			w.queue.wakeAfter(pollInterval(held, w.queue.subscribedBoth(), 0))
		}
		return nil, held
	}
	if sent, err = w.replicate(ctx, w.token, sent); err != nil {
		return nil, err
	}
	return w.startLease(fence, sent)
}

// startLease begins a hold of the lock, which is ours by a request that was sent then.
func (w *fairWaiter) startLease(fence int64, sent time.Time) (*Lease, error) {
	h, err := w.startHold(w.request, w.token, fence, sent)
	if err != nil {
		return nil, err
	}
	w.queue.wakeAfter(pollInterval(&HeldError{Token: w.token, TTL: w.opts.TTL}, w.queue.subscribedBoth(), 0))
	return newLease(h), nil
}

// mustPoll reports whether a waiter that was refused has to look after the holder:
// the first in the queue, and who is not in it. The others will be told when they
// are the first.
func (w *fairWaiter) mustPoll(refusal any) bool {
	fields, _ := refusal.([]any)
	return len(fields) > 2 || w.held != nil || !w.queue.subscribedBoth()
}

// waitTurn waits until it is time to ask again. Who cannot be told has to look.
func (w *fairWaiter) waitTurn(ctx context.Context, place *waiter) error {
	if w.queue.subscribedBoth() {
		return w.waitForWake(ctx, place.wakeup)
	}
	timer := time.AfterFunc(foreignPollInterval, func() { notify(place.wakeup) })
	defer timer.Stop()
	return w.waitForWake(ctx, place.wakeup)
}

// fairProtocol is a string that holds the token, with a queue beside it.
type fairProtocol struct {
	mutexProtocol
	keys           []string // the lock, its queue, its waiters' signs of life; its fence, if it has one
	processChannel string   // where waiters of this process are told
	core           *core
	publishCounts  int // 1 if PUBLISH returns how many listen, 0 if only how many do at one node

	grant time.Duration // what a release gives to a waiter of this process; 0 = the time for a claim
}

func newFairProtocol(t *core, key string, fence bool) *fairProtocol {
	keys := []string{key, companionKey(key, "queue"), companionKey(key, "alive")}
	if fence {
		keys = append(keys, companionKey(key, "fence"))
	}
	f := &fairProtocol{mutexProtocol: *newMutexProtocol(t.transport, key, false), keys: keys, core: t, publishCounts: 1}
	f.processChannel = f.freeChannel + ":" + processOf(t.id)
	if t.transport.clustered() {
		f.publishCounts = 0
	}
	return f
}

// send sends a script with what all have in common, and more.
func (p *fairProtocol) send(ctx context.Context, s *script, keys []string, args ...any) future {
	return s.send(ctx, p.transport, keys, append([]any{p.freeChannel, claimTimeout.Milliseconds(), p.publishCounts}, args...)...)
}

// enqueue asks for the lock and, for a life longer than 0, for a place in the queue.
func (p *fairProtocol) enqueue(ctx context.Context, token string, ttl, queueTTL time.Duration) future {
	return p.send(ctx, fairAcquire, p.keys, token, ttl.Milliseconds(), queueTTL.Milliseconds())
}

func (p *fairProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return p.enqueue(ctx, token, ttl, 0)
}

func (p *fairProtocol) release(ctx context.Context, token string, _ int) future {
	g := grant{sent: time.Now(), ttl: p.grant}
	ttl := cmp.Or(p.grant, claimTimeout)
	return &handover{p.send(ctx, fairRelease, p.keys[:3], token, processOf(p.core.id), ttl.Milliseconds()), p, g}
}

// grant is a lock that was handed over within a process for more than the time of
// a claim: whoever knows when the release was sent need not ask again.
type grant struct {
	sent time.Time
	ttl  time.Duration // 0 = it has to be claimed
}

// grantTTL returns what a lock of these options may be granted for, 0 if it has to
// be claimed: the fence is raised by the claim, replicas are asked by it.
func grantTTL(o Options) time.Duration {
	if o.Fence || o.Replicas > 0 {
		return 0
	}
	return o.TTL
}

// handover is a release that tells the next holder, if it waits in this process.
type handover struct {
	future
	protocol *fairProtocol
	grant    grant
}

// wait implements [pending]. Who gives up does not keep the next one from being
// told.
func (h *handover) wait(ctx context.Context) (any, error) {
	reply, err := h.future.wait(ctx)
	if err != nil && ctx.Err() != nil {
		c := h.protocol.core
		c.tasks.spawn(func() {
			if late, err := h.future.wait(c.alive); err == nil {
				h.deliver(late)
			}
		})
	}
	h.deliver(reply)
	return reply, err
}

func (h *handover) deliver(reply any) {
	if next, handed := reply.(string); handed {
		h.protocol.core.notifier.handTo(h.protocol.processChannel, next, h.grant)
	}
}

// heartbeat gives a sign of life for tokens in the queue.
func (p *fairProtocol) heartbeat(ctx context.Context, tokens []string) future {
	args := make([]any, 0, 1+len(tokens))
	args = append(args, waiterTTL.Milliseconds())
	for _, token := range tokens {
		args = append(args, token)
	}
	return p.send(ctx, fairHeartbeat, p.keys[:3], args...)
}
