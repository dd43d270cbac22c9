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
	//go:embed fair_beat.lua
	fairBeatSource string

	fairAcquire = newScript(fairCommonSource + fairAcquireSource)
	fairRelease = newScript(fairCommonSource + fairReleaseSource)
	fairBeat    = newScript(fairCommonSource + fairBeatSource)
)

const (
	// waiterLife is how long a waiter keeps its place without a sign of life.
	waiterLife = 6 * time.Second
	// beatEvery is how often waiters give one, all of a process together.
	beatEvery = waiterLife / 3
	// claimTime is how long a waiter has to claim what it was handed; then it is
	// the next one's turn.
	claimTime = time.Second
	// beatSize is how many waiters give a sign of life in one command.
	beatSize = 500
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
type Fair struct{ target }

var _ Locker = (*Fair)(nil)

// Fair returns the lock of that name. It sends nothing. Options that cannot work
// are reported as [ErrArgument] by Lock and TryLock; [Options.Wait] is one of
// them, since waiters of a fair lock are told.
func (c *Client) Fair(key string, o Options) *Fair {
	form := newFairForm(c.transport, key, o.Fence)
	f := &Fair{c.newTarget(key, o, form)}
	form.grant = grantable(f.opts)
	if f.bad == nil && o.Wait != (Wait{}) {
		f.bad = fmt.Errorf("%w: a fair lock has its own way to wait", ErrArgument)
	}
	if f.bad == nil {
		f.bad = c.checkCompanions(key)
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
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	r := &request{began: time.Now()}
	over := f.waiting(ctx, r)
	own := f.form.(*fairForm).own
	line := f.client.notifier.rejoin(own)
	if line == nil {
		lease, err := f.attempt(ctx, r)
		if !errors.Is(err, ErrHeld) {
			return over(lease, err)
		}
		line = f.client.notifier.acquire(f.form.channel(), own)
	}
	defer f.client.notifier.release(line)
	return over(f.queue(ctx, r, line))
}

// queue stands in the server's queue, again with a new token whenever it is not
// known what became of the old one.
func (f *Fair) queue(ctx context.Context, r *request, line *line) (*Lease, error) {
	backoff := minBackoff
	for waited := false; ; waited = true {
		q, err := f.newQueued(r, line)
		if err != nil {
			return nil, err
		}
		lease, err := q.wait(ctx)
		if err == nil || !transient(err) || !waited && q.held == nil || endOf(ctx, f.client) != nil {
			return lease, err
		}
		if !pauseFor(ctx, backoff) {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", f.key, err, ctx.Err())
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// queued is one token that stands in the queue.
type queued struct {
	*Fair
	request *request
	line    *line
	token   string
	asked   pending // the newest request; nil = none yet
	held    error   // the newest refusal; nil = none yet
}

func (f *Fair) newQueued(r *request, line *line) (*queued, error) {
	token, err := newToken(f.client.owner)
	if err != nil {
		return nil, err
	}
	token = strings.TrimSuffix(token, processOf(token)) + processOf(f.client.id)
	return &queued{Fair: f, request: r, line: line, token: token}, nil
}

// processOf returns the end of an id, or of a token. Those who wait for a fair
// lock through one transport share it with its id, so that it tells where to find
// them.
func processOf(id string) string { return id[len(id)-12:] }

// wait waits for the lock until ctx ends. Without it, it leaves the queue.
func (q *queued) wait(ctx context.Context) (lease *Lease, err error) {
	f := &q.request.flight
	*f = flight{target: &q.target, token: q.token, until: time.Now().Add(q.opts.TTL)}
	if !q.client.tasks.takeOff(f) {
		return nil, describe("acquire", q.key, ErrClosed)
	}
	defer q.client.tasks.land(f)
	me := q.line.join(q.token)
	stopBeating := q.line.beat(q.client, q.form.(*fairForm))
	defer func() {
		stopBeating()
		q.line.leave(me, err == nil)
	}()
	for {
		if lease, err = q.take(ctx, me); !errors.Is(err, ErrHeld) {
			err = q.outwaited(ctx, q.held, err)
			break
		}
		q.held = err
		if err = q.listen(ctx, me); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", q.key, q.held, err)
			break
		}
	}
	if err != nil {
		q.client.undo(q.form, q.token, time.Now().Add(q.opts.TTL), q.asked)
	}
	return lease, err
}

// take takes the lock if it is our turn. Who was granted it need not ask.
func (q *queued) take(ctx context.Context, me *place) (*Lease, error) {
	g := q.line.granted(me)
	if g.ttl == 0 || g.ttl != grantable(q.opts) || time.Since(g.sent) > g.ttl/2 {
		return q.ask(ctx)
	}
	return q.have(0, g.sent)
}

// ask takes the lock if it is our turn, and queues if not. Until it can be told
// of its turn, a token does not queue: it would be passed over.
func (q *queued) ask(ctx context.Context) (*Lease, error) {
	q.request.attempts++
	sent := time.Now()
	life := waiterLife
	if !q.line.hearsNames() && q.held == nil {
		life = 0
	}
	q.asked = q.form.(*fairForm).ask(ctx, q.token, q.opts.TTL, life)
	reply, err := q.asked.wait(ctx)
	var held *HeldError
	var fence int64
	if err == nil {
		held, fence, err = heldBy(q.key, reply)
	}
	if err != nil {
		return nil, q.failed(q.token, describe("acquire", q.key, err))
	}
	if held != nil {
		q.request.held = held
		if q.request.attempts == 1 {
			q.client.tell(Event{Kind: Contended, At: time.Now(), Key: q.key, Owner: q.client.owner})
		}
		if q.watches(reply) {
			q.line.retryIn(pause(held, q.line.hearsNames(), 0))
		}
		return nil, held
	}
	if sent, err = q.replicate(ctx, q.token, sent); err != nil {
		return nil, err
	}
	return q.have(fence, sent)
}

// have begins a hold of the lock, which is ours by a request that was sent then.
func (q *queued) have(fence int64, sent time.Time) (*Lease, error) {
	h, err := q.begin(q.request, q.token, fence, sent)
	if err != nil {
		return nil, err
	}
	q.line.retryIn(pause(&HeldError{Token: q.token, TTL: q.opts.TTL}, q.line.hearsNames(), 0))
	return newLease(h), nil
}

// watches reports whether a waiter that was refused has to look after the holder:
// the first in the queue, and who is not in it. The others will be told when they
// are the first.
func (q *queued) watches(refusal any) bool {
	fields, _ := refusal.([]any)
	return len(fields) > 2 || q.held != nil || !q.line.hearsNames()
}

// listen waits until it is time to ask again. Who cannot be told has to look.
func (q *queued) listen(ctx context.Context, me *place) error {
	if q.line.hearsNames() {
		return q.hark(ctx, me.news)
	}
	timer := time.AfterFunc(foreignPoll, func() { wake(me.news) })
	defer timer.Stop()
	return q.hark(ctx, me.news)
}

// fairForm is a string that holds the token, with a queue beside it.
type fairForm struct {
	mutexForm
	keys []string // the lock, its queue, its waiters' signs of life; its fence, if it has one
	own  string   // where waiters of this process are told
	t    *transport
	told int // 1 if PUBLISH returns how many listen, 0 if only how many do at one node

	grant time.Duration // what a release gives to a waiter of this process; 0 = the time for a claim
}

func newFairForm(t *transport, key string, fence bool) *fairForm {
	keys := []string{key, name(key, "queue"), name(key, "alive")}
	if fence {
		keys = append(keys, name(key, "fence"))
	}
	f := &fairForm{mutexForm: *newMutexForm(t.wire, key, false), keys: keys, t: t, told: 1}
	f.own = f.free + ":" + processOf(t.id)
	if t.wire.clustered() {
		f.told = 0
	}
	return f
}

// send sends a script with what all have in common, and more.
func (f *fairForm) send(ctx context.Context, s *script, keys []string, args ...any) pending {
	return s.send(ctx, f.wire, keys, append([]any{f.free, claimTime.Milliseconds(), f.told}, args...)...)
}

// ask asks for the lock and, for a life longer than 0, for a place in the queue.
func (f *fairForm) ask(ctx context.Context, token string, ttl, life time.Duration) pending {
	return f.send(ctx, fairAcquire, f.keys, token, ttl.Milliseconds(), life.Milliseconds())
}

func (f *fairForm) acquire(ctx context.Context, token string, ttl time.Duration, _ int) pending {
	return f.ask(ctx, token, ttl, 0)
}

func (f *fairForm) release(ctx context.Context, token string, _ int) pending {
	g := grant{sent: time.Now(), ttl: f.grant}
	ttl := cmp.Or(f.grant, claimTime)
	return &handover{f.send(ctx, fairRelease, f.keys[:3], token, processOf(f.t.id), ttl.Milliseconds()), f, g}
}

// grant is a lock that was handed over within a process for more than the time of
// a claim: whoever knows when the release was sent need not ask again.
type grant struct {
	sent time.Time
	ttl  time.Duration // 0 = it has to be claimed
}

// grantable returns what a lock of these options may be granted for, 0 if it has to
// be claimed: the fence is raised by the claim, replicas are asked by it.
func grantable(o Options) time.Duration {
	if o.Fence || o.Replicas > 0 {
		return 0
	}
	return o.TTL
}

// handover is a release that tells the next holder, if it waits in this process.
type handover struct {
	pending
	form  *fairForm
	grant grant
}

// wait implements [pending]. Who gives up does not keep the next one from being
// told.
func (h *handover) wait(ctx context.Context) (any, error) {
	reply, err := h.pending.wait(ctx)
	if err != nil && ctx.Err() != nil {
		t := h.form.t
		t.tasks.spawn(func() {
			if late, err := h.pending.wait(t.alive); err == nil {
				h.tell(late)
			}
		})
	}
	h.tell(reply)
	return reply, err
}

func (h *handover) tell(reply any) {
	if next, handed := reply.(string); handed {
		h.form.t.notifier.hand(h.form.own, next, h.grant)
	}
}

// beat gives a sign of life for tokens in the queue.
func (f *fairForm) beat(ctx context.Context, tokens []string) pending {
	args := make([]any, 0, 1+len(tokens))
	args = append(args, waiterLife.Milliseconds())
	for _, token := range tokens {
		args = append(args, token)
	}
	return f.send(ctx, fairBeat, f.keys[:3], args...)
}
