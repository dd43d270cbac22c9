package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Locker is a lock of any kind. It is a handle, not a held lock: many goroutines may use one
// concurrently.
type Locker interface {
	// TryLock acquires the lock if it is free. If it is held, TryLock returns
	// [ErrHeld] immediately. It takes one round trip, or two to learn the holder. If ctx
	// ends before the reply, the error matches ctx.Err(), and whatever the request may
	// have done is undone in the background. While 1,000 attempts of the client are yet to be
	// undone, TryLock waits, too; not on a cluster.
	TryLock(ctx context.Context) (*Lease, error)
	// Lock waits for the lock until ctx ends. The error then matches ctx.Err() and, if
	// a holder was seen, [ErrHeld]. The lease does not end with ctx. Lock returns an
	// error before the first reply of the server immediately. Later it retries after
	// errors that may pass, such as a restart or a failover.
	Lock(ctx context.Context) (*Lease, error)
	// Holder returns the holder of the lock and its remaining TTL; nil if the lock is
	// free. It is the writer if there is one, the first holder of an [Client.All], and the holder
	// of a [Semaphore] whose deadline is the next. Holder changes nothing. The answer may be
	// outdated when it arrives: use it for messages, not for decisions.
	Holder(ctx context.Context) (*HeldError, error)
}

// locker implements [Locker] for most kinds.
type locker struct {
	base
	try     func(context.Context, *request) (*Lease, error) // asks the server once
	waiting request                                         // what the requests of Lock have in common
}

// TryLock implements [Locker].
func (l *locker) TryLock(ctx context.Context) (*Lease, error) {
	return l.tryLock(ctx, &request{try: l.try})
}

// Lock implements [Locker].
func (l *locker) Lock(ctx context.Context) (*Lease, error) {
	r := l.waiting
	r.try = l.try
	return l.lock(ctx, &r)
}

// leaseOf returns the only lease of a hold, if there is one.
func leaseOf(h *hold, err error) (*Lease, error) {
	if err != nil {
		return nil, err
	}
	return newLease(h), nil
}

// base is the part that all kinds of locks share.
type base struct {
	client   *Client
	key      string
	opts     Options
	protocol protocol
	several  bool // several keys hold the token; after the loss of the lock some of them may be left
}

// newBase validates the arguments of a lock. The options in unfit do not apply to its kind.
func (c *Client) newBase(key string, o Options, kind string, unfit ...string) (base, error) {
	err := error(nil)
	if c.isZero() {
		err = fmt.Errorf("%w: New did not return its client", ErrArgument)
	} else if o, err = o.withDefaults(); err == nil {
		err = checkOwner(c.owner)
	}
	if err == nil && o.Fence {
		err = c.checkCompanions(key)
	}
	for _, option := range unfit {
		if err == nil && o.sets(option) {
			err = fmt.Errorf("%w: Options.%s does not apply to %s", ErrArgument, option, kind)
		}
	}
	return base{client: c, key: key, opts: o}, nameKey(key, err)
}

// sets reports whether an option that does not apply to all kinds is set.
func (o Options) sets(option string) bool {
	return option == "Wait" && o.Wait != (Wait{}) || option == "Fence" && o.Fence || option == "Replicas" && o.Replicas != 0
}

// nameKey adds the name of a lock to an error; nil remains nil.
func nameKey(key string, err error) error {
	if err != nil {
		return fmt.Errorf("lock %q: %w", key, err)
	}
	return nil
}

// Holder implements [Locker].
func (b *base) Holder(ctx context.Context) (*HeldError, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	reply, err := b.protocol.(peeker).peek(ctx).wait(ctx)
	if err != nil {
		return nil, describe("get the holder of", b.key, err)
	}
	if reply == nil {
		return nil, nil
	}
	held, _, err := parseAcquire(b.key, reply)
	return held, err
}

// request is one call of Lock or TryLock.
type request struct {
	// try asks the server once.
	try func(context.Context, *request) (*Lease, error)
	// wait waits for the lock; nil = as base.acquireWaiting.
	wait func(context.Context, *request) (*Lease, error)
	// owner may enter its own hold again, and must not wait for itself; nil = there are only
	// separate holds.
	owner *owner
	// shared means that several requests may hold the lock together: after a success
	// the next waiter is woken, too, and a request first tries without a queue.
	shared bool
	// chained means that the last attempt has woken the next waiter if that one may get
	// the lock, too; used with shared.
	chained bool
	// inOrder means that each waiter has its own place in the queue on the server: see [Client.Fair].
	inOrder bool
	// contended means that the lock is probably held.
	contended bool
	// pollEvery is the longest pause of a waiter without a message; 0 = no limit.
	pollEvery time.Duration
	// token is the token of the attempts; empty = each gets a new one.
	token string
	// registrar is the protocol of the lock among whose waiters token is registered, or
	// will be; nil = it is not.
	registrar *scriptProtocol
	// queue is where the request waits; nil = it does not wait for messages to its
	// process.
	queue *waitQueue
	// noHandOver means that no release may hand the lock to the request.
	noHandOver bool
	// ticket is that of the first registration of an [Client.All] or of a waiter for a [Client.Fair], or of
	// the first refusal of a reader; 0 = none yet, noTicket = a reader that does not wait.
	ticket int64

	began    time.Time
	acquired <-chan struct{} // of the owner, since the last attempt
	attempts int
	held     error   // last refusal; nil = none yet
	current  attempt // attempt in progress
}

// tryLock implements TryLock for all kinds.
func (b *base) tryLock(ctx context.Context, r *request) (*Lease, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	return r.try(ctx, r)
}

// lock implements Lock for all kinds.
func (b *base) lock(ctx context.Context, r *request) (*Lease, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	r.began = time.Now()
	b.client.waits.Add(1)
	wait := r.wait
	if wait == nil {
		wait = b.acquireWaiting
	}
	lease, err := wait(ctx, r)
	b.client.waits.Add(-1)
	err = r.withHolder(ctx, err)
	if err != nil && b.client.tasks.begin() {
		defer b.client.tasks.done()
		now := time.Now()
		b.client.emit(Event{Kind: GaveUp, At: now, Key: b.key, Owner: b.client.owner, Attempts: r.attempts, Elapsed: now.Sub(r.began), Err: err})
	}
	return lease, err
}

func (b *base) acquireWaiting(ctx context.Context, r *request) (*Lease, error) {
	if b.opts.Wait.Poll > 0 {
		return b.poll(ctx, r)
	}
	channel, local := b.protocol.channel(), (*localQueue)(nil)
	if r.inOrder {
		local = &localQueue{channel: channel, inOrder: true}
		defer local.endUse()
		return b.waitAndAcquire(ctx, r, local)
	}
	for local == nil {
		acquired := r.owner.nextAcquire() // before holdsAny: no acquire is missed in between
		if r.owner.holdsAny() || r.shared && !b.client.localQueues.busy(channel) {
			if lease, err := r.try(ctx, r); !errors.Is(err, ErrHeld) {
				return lease, err
			}
		}
		var err error
		if local, err = b.client.localQueues.enter(ctx, b.client, channel, acquired); err != nil {
			return nil, fmt.Errorf("lock: wait for %q: %w", b.key, err)
		}
	}
	defer b.client.localQueues.remove(local, nil) // the next goroutine goes on
	return b.waitAndAcquire(ctx, r, local)
}

// foreignPollInterval is the pause between attempts if the holder's release may send
// no message: the holder uses another library, or the subscription is not confirmed.
const foreignPollInterval = 250 * time.Millisecond

// maxPollInterval is the average pause between attempts if the holder's release sends
// a message. The key may also vanish without one (DEL, FLUSHALL, eviction).
const maxPollInterval = 5 * time.Second

// minBackoff and maxBackoff are the first and the longest pause between attempts while
// the server cannot be reached.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// waitAndAcquire tries once. If the lock is held, it waits until it has acquired the
// lock or ctx ends.
func (b *base) waitAndAcquire(ctx context.Context, r *request, local *localQueue) (*Lease, error) {
	notifier, processChannel := &b.client.notifier, b.processChannel()
	queue, w := local.reuseSubscription(notifier, processChannel) // before the attempt: no message is missed in between
	r.contended, r.queue = queue != nil, queue
	lease, err := b.tryInQueue(ctx, r, queue, w)
	if queue == nil && errors.Is(err, ErrHeld) {
		queue, w = local.subscribe(notifier, b.protocol.channel(), processChannel)
		r.queue = queue
	}
	if queue == nil {
		return lease, err
	}
	held, backoff := err, minBackoff
	for waited := false; err != nil && (errors.Is(err, ErrHeld) || waited && transient(err)); waited = true {
		if errors.Is(err, ErrHeld) {
			held, backoff = err, minBackoff
		}
		if pause := r.capPoll(b.pollInterval(r, err, queue, backoff)); !r.inOrder || queue.isFirst(w) {
			queue.wakeAfter(pause)
		}
		if err = b.client.await(ctx, w.wakeup, r.acquired); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", b.key, held, err)
			break
		}
		lease, err = b.tryInQueue(ctx, r, queue, w)
		backoff = min(2*backoff, maxBackoff)
	}
	if err == nil {
		queue.wakeAfter(r.capPoll(pollInterval(lease.Token(), queue.registrationNow().untilTurn(b.opts.keyTTL()), queue.subscribed())))
	}
	queue.leave(w, err == nil && (!r.shared || r.chained))
	if r.registrar != nil && (err != nil || lease.Token() != r.token) {
		r.registrar.giveUp(r.token)
		r.token, r.registrar = "", nil
	}
	queue.unregister()
	return lease, err
}

// processChannel returns the channel on which a release wakes this process only; empty
// if releases of this kind of lock wake all processes.
func (b *base) processChannel() string {
	switch p := b.protocol.(type) {
	case *scriptProtocol:
		return p.processChannel()
	case *rwProtocol:
		if p.mode == writeMode {
			return p.writers.processChannel()
		}
	case *redlockAttempt:
		return p.redlock.firstNode.processChannel()
	}
	return ""
}

// tryInQueue tries once, as w, a waiter in queue; nil = there is none yet. If the lock is
// held, the next release hands it to the waiter if it is inOrder or ctx is for [inTurn], or if its process
// was woken too often and found the lock taken.
func (b *base) tryInQueue(ctx context.Context, r *request, queue *waitQueue, w *waiter) (_ *Lease, err error) {
	p, hands := b.protocol.(*scriptProtocol)
	hands = hands && !p.broadcast && !r.noHandOver
	if hands && queue != nil && r.token == "" && (r.inOrder || ctx.Value(inTurn{}) != nil || queue.registrationNow().starving()) {
		if r.token, err = b.client.newProcessToken(b.client.owner, r.inOrder); err != nil {
			return nil, err
		}
		r.registrar = p
		queue.setToken(w, r.token)
	}
	r.acquired = r.owner.nextAcquire()
	return r.try(ctx, r)
}

// capPoll returns pause, at most pollEvery.
func (r *request) capPoll(pause time.Duration) time.Duration {
	if r.pollEvery > 0 {
		return min(pause, r.pollEvery)
	}
	return pause
}

// pollInterval returns the pause of a waiter while a token holds the lock. A message may
// end it earlier. A holder of this package publishes its release, so a subscribed
// waiter waits for the end of the holder's TTL, at most 2.5 to 7.5 s at random.
func pollInterval(token string, ttl time.Duration, subscribed bool) time.Duration {
	limit := foreignPollInterval
	if _, ours := tokenOwner(token); ours && subscribed && ttl >= 0 {
		limit = randomBetween(maxPollInterval/2, maxPollInterval*3/2)
	}
	if ttl < 0 {
		return limit
	}
	return min(ttl+time.Millisecond, limit)
}

// pollInterval returns the pause after an attempt of a waiter in queue that ended with
// err. If a release wakes one process, that process may be stopped, so a registered
// process polls by itself: every 1 to 2 s if it is one of the next.
func (b *base) pollInterval(r *request, err error, queue *waitQueue, backoff time.Duration) time.Duration {
	var held *HeldError
	switch {
	case !errors.As(err, &held):
		return backoff
	case b.processChannel() == "":
		return pollInterval(held.Token, held.TTL, queue.subscribed())
	}
	reg := queue.registrationNow()
	pause := pollInterval(held.Token, reg.untilTurn(held.TTL), queue.subscribedBoth())
	if r.inOrder || reg.isNext() {
		pause = min(pause, randomBetween(time.Second, 2*time.Second))
	}
	return pause
}

// withHolder adds the last seen holder to the error of a wait that ended with ctx. The
// error of a request that was in progress does not contain it.
func (r *request) withHolder(ctx context.Context, err error) error {
	if r.held == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("%w: %w", err, r.held)
}

// check returns an error if no request may be sent.
func (b *base) check(ctx context.Context) error {
	switch {
	case b.client == nil:
		return fmt.Errorf("lock: %w: Client.Semaphore did not return this semaphore", ErrArgument)
	case b.client.isClosed():
		return fmt.Errorf("lock %q: %w", b.key, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("lock %q: %w", b.key, ctx.Err())
	}
	return nil
}

// acquireOnce asks the server once.
func (b *base) acquireOnce(ctx context.Context, r *request) (*hold, error) {
	return b.acquireOnceBy(ctx, r, func(token string) future {
		p, ok := b.protocol.(*scriptProtocol)
		if r.chained = ok && r.queue != nil && r.queue.subscribedBoth(); r.chained {
			return p.acquireOrRegister(ctx, token, b.opts.keyTTL(), r.queue, r.token != "")
		}
		return b.protocol.acquire(ctx, token, b.opts.keyTTL(), 1)
	})
}

// acquireOnceBy asks the server once, with send. If no reply comes, it undoes the
// attempt in the background.
func (b *base) acquireOnceBy(ctx context.Context, r *request, send func(token string) future) (*hold, error) {
	token, err := r.token, error(nil)
	if token == "" {
		token, err = newToken(b.client.owner, false)
	}
	if err != nil {
		return nil, err
	}
	if err := b.client.awaitUndos(ctx); err != nil {
		return nil, describe("acquire", b.key, err)
	}
	r.attempts++
	sent := time.Now()
	r.current = attempt{base: b, token: token, until: sent.Add(b.opts.keyTTL())}
	if !b.client.tasks.beginAttempt(&r.current) {
		return nil, describe("acquire", b.key, ErrClosed)
	}
	defer b.client.tasks.endAttempt(&r.current)
	var held *HeldError
	var fence int64
	request := send(token)
	reply, err := request.wait(ctx)
	if err == nil {
		held, fence, err = parseAcquire(b.key, reply)
		sent = sinceWritten(request, sent)
	}
	if outcomeUnknown(err) {
		b.undoAttempt(r, token, sent, request)
	}
	return b.settle(ctx, r, token, sent, held, fence, err)
}

// settle returns the hold of an attempt that was sent at sent, or why there is none: err, or
// the holder.
func (b *base) settle(ctx context.Context, r *request, token string, sent time.Time, held *HeldError, fence int64, err error) (*hold, error) {
	if err != nil {
		err = describe("acquire", b.key, err)
		b.client.emit(Event{Kind: Failed, At: time.Now(), Key: b.key, Owner: b.client.owner, Token: token, Err: err})
		return nil, err
	}
	if held != nil {
		r.held = held
		if r.attempts == 1 {
			b.client.emit(Event{Kind: Contended, At: time.Now(), Key: b.key, Owner: b.client.owner})
		}
		return nil, held
	}
	if sent, err = b.replicate(ctx, token, sent); err != nil {
		return nil, err
	}
	return b.startHold(r, token, fence, sent)
}

// undoAttempt undoes an attempt whose outcome is unknown, which was sent at sent, also if
// it has registered its token.
func (b *base) undoAttempt(r *request, token string, sent time.Time, acquire future) {
	until := sent.Add(b.opts.keyTTL())
	registered := r.registrar
	if registered != nil {
		b.client.undo(leaving{registered}, token, later(until, sent.Add(registrationTTL)), acquire)
	}
	if b.protocol != protocol(registered) {
		b.client.undo(b.protocol, token, until, acquire)
	}
	r.token, r.registrar = "", nil // the undo would also release a later attempt with this token
}

// startHold returns the hold of a lock that was granted to a request sent at sent. If
// the grant arrives after its deadline, the lock is released again and the error
// matches [ErrLost].
func (b *base) startHold(r *request, token string, fence int64, sent time.Time) (*hold, error) {
	h := &hold{base: b, token: token, fence: fence, began: time.Now(), entries: 1, sent: sent, ttl: b.opts.TTL, longestTTL: b.opts.TTL, slot: -1}
	h.renewAt = h.nextRenewal()
	if h.pastDeadline(h.began) {
		b.client.undo(b.protocol, token, sent.Add(b.opts.keyTTL()), nil)
		return nil, fmt.Errorf("lock: acquire %q: the reply took %v, too long for a TTL of %v: %w", b.key, h.began.Sub(sent), b.opts.TTL, ErrLost)
	}
	b.client.renewer.add(h)
	if b.client.isClosed() { // closed in the meantime: Close may have missed h
		h.finish(ErrClosed)
		b.client.undo(b.protocol, token, sent.Add(b.opts.keyTTL()), nil)
		return nil, describe("acquire", b.key, ErrClosed)
	}
	b.client.emit(Event{Kind: Acquired, At: h.began, Key: b.key, Owner: b.client.owner, Token: token,
		Attempts: r.attempts, Elapsed: h.began.Sub(r.began)})
	return h, nil
}

// poll retries as Wait says.
func (b *base) poll(ctx context.Context, r *request) (*Lease, error) {
	for {
		lease, err := r.try(ctx, r)
		if !errors.Is(err, ErrHeld) && !(r.held != nil && transient(err)) {
			return lease, err
		}
		if b.opts.Wait.MaxTries > 0 && r.attempts >= b.opts.Wait.MaxTries {
			return nil, err
		}
		wait := b.opts.Wait
		b.client.sleep(ctx, wait.Poll+time.Duration((2*rand.Float64()-1)*wait.Jitter*float64(wait.Poll)))
		if cause := stopCause(ctx, b.client); cause != nil {
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", b.key, err, cause)
		}
	}
}
