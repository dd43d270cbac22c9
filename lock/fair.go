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
	form := newFairProtocol(c.core, key, o.Fence)
	f := &Fair{c.newBase(key, o, form)}
	form.grant = grantTTL(f.opts)
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
	over := f.countWait(ctx, r)
	own := f.protocol.(*fairProtocol).processChannel
	line := f.client.notifier.reuse(own)
	if line == nil {
		lease, err := f.attempt(ctx, r)
		if !errors.Is(err, ErrHeld) {
			return over(lease, err)
		}
		line = f.client.notifier.acquire(f.protocol.channel(), own)
	}
	defer f.client.notifier.release(line)
	return over(f.waitInQueue(ctx, r, line))
}

// waitInQueue stands in the server's queue, again with a new token whenever it is not
// known what became of the old one.
func (f *Fair) waitInQueue(ctx context.Context, r *request, line *waitQueue) (*Lease, error) {
	backoff := minBackoff
	for waited := false; ; waited = true {
		q, err := f.newWaiter(r, line)
		if err != nil {
			return nil, err
		}
		lease, err := q.wait(ctx)
		if err == nil || !transient(err) || !waited && q.held == nil || stopCause(ctx, f.client) != nil {
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

func (f *Fair) newWaiter(r *request, line *waitQueue) (*fairWaiter, error) {
	token, err := newToken(f.client.owner)
	if err != nil {
		return nil, err
	}
	token = strings.TrimSuffix(token, processOf(token)) + processOf(f.client.id)
	return &fairWaiter{Fair: f, request: r, queue: line, token: token}, nil
}

// processOf returns the end of an id, or of a token. Those who wait for a fair
// lock through one transport share it with its id, so that it tells where to find
// them.
func processOf(id string) string { return id[len(id)-12:] }

// wait waits for the lock until ctx ends. Without it, it leaves the queue.
func (q *fairWaiter) wait(ctx context.Context) (lease *Lease, err error) {
	f := &q.request.current
	*f = attempt{base: &q.base, token: q.token, until: time.Now().Add(q.opts.TTL)}
	if !q.client.tasks.beginAttempt(f) {
		return nil, describe("acquire", q.key, ErrClosed)
	}
	defer q.client.tasks.endAttempt(f)
	me := q.queue.join(q.token)
	stopBeating := q.queue.startHeartbeat(q.client, q.protocol.(*fairProtocol))
	defer func() {
		stopBeating()
		q.queue.leave(me, err == nil)
	}()
	for {
		if lease, err = q.tryAcquire(ctx, me); !errors.Is(err, ErrHeld) {
			err = q.waitError(ctx, q.held, err)
			break
		}
		q.held = err
		if err = q.waitTurn(ctx, me); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", q.key, q.held, err)
			break
		}
	}
	if err != nil {
		q.client.undo(q.protocol, q.token, time.Now().Add(q.opts.TTL), q.lastRequest)
	}
	return lease, err
}

// tryAcquire takes the lock if it is our turn. Who was granted it need not ask.
func (q *fairWaiter) tryAcquire(ctx context.Context, me *waiter) (*Lease, error) {
	g := q.queue.grantFor(me)
	if g.ttl == 0 || g.ttl != grantTTL(q.opts) || time.Since(g.sent) > g.ttl/2 {
		return q.askServer(ctx)
	}
	return q.startLease(0, g.sent)
}

// askServer takes the lock if it is our turn, and queues if not. Until it can be told
// of its turn, a token does not queue: it would be passed over.
func (q *fairWaiter) askServer(ctx context.Context) (*Lease, error) {
	q.request.attempts++
	sent := time.Now()
	life := waiterTTL
	if !q.queue.subscribedBoth() && q.held == nil {
		life = 0
	}
	q.lastRequest = q.protocol.(*fairProtocol).enqueue(ctx, q.token, q.opts.TTL, life)
	reply, err := q.lastRequest.wait(ctx)
	var held *HeldError
	var fence int64
	if err == nil {
		held, fence, err = parseAcquire(q.key, reply)
	}
	if err != nil {
		return nil, q.emitFailure(q.token, describe("acquire", q.key, err))
	}
	if held != nil {
		q.request.held = held
		if q.request.attempts == 1 {
			q.client.emit(Event{Kind: Contended, At: time.Now(), Key: q.key, Owner: q.client.owner})
		}
		if q.mustPoll(reply) {
			q.queue.wakeAfter(pollInterval(held, q.queue.subscribedBoth(), 0))
		}
		return nil, held
	}
	if sent, err = q.replicate(ctx, q.token, sent); err != nil {
		return nil, err
	}
	return q.startLease(fence, sent)
}

// startLease begins a hold of the lock, which is ours by a request that was sent then.
func (q *fairWaiter) startLease(fence int64, sent time.Time) (*Lease, error) {
	h, err := q.startHold(q.request, q.token, fence, sent)
	if err != nil {
		return nil, err
	}
	q.queue.wakeAfter(pollInterval(&HeldError{Token: q.token, TTL: q.opts.TTL}, q.queue.subscribedBoth(), 0))
	return newLease(h), nil
}

// mustPoll reports whether a waiter that was refused has to look after the holder:
// the first in the queue, and who is not in it. The others will be told when they
// are the first.
func (q *fairWaiter) mustPoll(refusal any) bool {
	fields, _ := refusal.([]any)
	return len(fields) > 2 || q.held != nil || !q.queue.subscribedBoth()
}

// waitTurn waits until it is time to ask again. Who cannot be told has to look.
func (q *fairWaiter) waitTurn(ctx context.Context, me *waiter) error {
	if q.queue.subscribedBoth() {
		return q.waitForWake(ctx, me.wakeup)
	}
	timer := time.AfterFunc(foreignPollInterval, func() { notify(me.wakeup) })
	defer timer.Stop()
	return q.waitForWake(ctx, me.wakeup)
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
func (f *fairProtocol) send(ctx context.Context, s *script, keys []string, args ...any) future {
	return s.send(ctx, f.transport, keys, append([]any{f.freeChannel, claimTimeout.Milliseconds(), f.publishCounts}, args...)...)
}

// enqueue asks for the lock and, for a life longer than 0, for a place in the queue.
func (f *fairProtocol) enqueue(ctx context.Context, token string, ttl, life time.Duration) future {
	return f.send(ctx, fairAcquire, f.keys, token, ttl.Milliseconds(), life.Milliseconds())
}

func (f *fairProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return f.enqueue(ctx, token, ttl, 0)
}

func (f *fairProtocol) release(ctx context.Context, token string, _ int) future {
	g := grant{sent: time.Now(), ttl: f.grant}
	ttl := cmp.Or(f.grant, claimTimeout)
	return &handover{f.send(ctx, fairRelease, f.keys[:3], token, processOf(f.core.id), ttl.Milliseconds()), f, g}
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
		t := h.protocol.core
		t.tasks.spawn(func() {
			if late, err := h.future.wait(t.alive); err == nil {
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
func (f *fairProtocol) heartbeat(ctx context.Context, tokens []string) future {
	args := make([]any, 0, 1+len(tokens))
	args = append(args, waiterTTL.Milliseconds())
	for _, token := range tokens {
		args = append(args, token)
	}
	return f.send(ctx, fairHeartbeat, f.keys[:3], args...)
}
