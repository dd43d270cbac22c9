package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"locktop/lock/internal/transport"
)

var redlockRaise = newScript("redlock_raise")

// redlock is the lock of [Quorum.Redlock].
type redlock struct {
	locker
	redlock *redlockKey
}

// Redlock returns the lock with this key, which is the same on every node. It sends nothing.
// [Options.Replicas] must be zero: a quorum needs no replicas. The holder is the token that is
// stored on more than half of the nodes, with time left. The loss of fewer than half of the
// servers neither stops the lock nor frees it. It is not reentrant. The algorithm is
// that of https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
//
// TryLock takes two round trips: one to the first node, one to the others. A fence takes a third
// one if the counters of the nodes differ. If too few nodes answer, the error matches
// [ErrNoQuorum] and not [ErrHeld]: the lock may be free. Lock subscribes to releases on the first
// node, which wake one process each, as for a [Client.Mutex], but never hand the lock over. Each
// process also tries again after a random time of one to five node time-outs, or five times as
// long while more than one process is registered before it. So the lock works without that node.
//
// The deadline counts from before the first command. A quorum extends it, or nothing
// does. A lease that is not extended in time is lost, and its copies are released. A
// node that restarted empty gets its copy again as long as the lease is valid.
//
// The lock is safe as long as servers keep what they granted and all clocks run at
// about the same speed. A server gives its vote away when it restarts without its
// data, or when its clock is set forward by more than a TTL. The holder can spare
// some nodes; one more such node lets a second holder in. [QuorumConfig.MinUptime]
// prevents the first case. Only a resource that checks [Lease.Fence] is safe in both
// cases: a node without a fence counter begins with its time in µs, so fences rise
// even after nodes lost their counters, unless their clocks were set back.
//
// Each node stores what a Mutex stores: `SET key token NX PX ttl`.
func (q *Quorum) Redlock(key string, o Options) (Locker, error) {
	t, err := q.client.newBase(key, o, "a Redlock", "Replicas")
	if err != nil {
		return nil, err
	}
	timeout := q.nodeTimeout(t.opts.TTL)
	if timeout >= t.opts.TTL {
		return nil, fmt.Errorf("lock %q: %w: a node time-out of %v; it must be shorter than the TTL of %v", key, ErrArgument, timeout, t.opts.TTL)
	}
	k := &redlockKey{set: q.nodes, core: q.client.core, key: key, fenceKeys: keysOf(key, o.Fence)[1:],
		freeChannel: companionKey(key, "free"), firstNode: newScriptProtocol(mutexScripts, q.client.core, key, false), nodeTimeout: timeout}
	t.protocol, t.several = &redlockAttempt{redlock: k}, true // each call makes an attempt of its own
	r := &redlock{locker{base: t, waiting: request{noHandOver: true}}, k}
	r.try = r.attempt
	return r, nil
}

// attempt asks the nodes once.
func (r *redlock) attempt(ctx context.Context, req *request) (*Lease, error) {
	defer func() {
		req.pollEvery = randomBetween(r.redlock.nodeTimeout, 5*r.redlock.nodeTimeout)
		if req.queue != nil && !req.queue.registrationNow().isNext() {
			req.pollEvery *= 5
		}
	}()
	if err := r.redlock.set.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("acquire", r.key, err)
	}
	t, c := r.base, r.redlock.newAttempt()
	t.protocol = c
	free := req.attempts == 0 && !req.contended
	return leaseOf(t.acquireOnceBy(ctx, req, func(token string) future { return c.startAcquire(token, t.opts.keyTTL(), free, req.queue) }))
}

// Holder implements [Locker], by the nodes' majority.
func (r *redlock) Holder(ctx context.Context) (*HeldError, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	if err := r.redlock.set.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("read", r.key, err)
	}
	set := r.redlock.set
	round := &acquireRound{attempt: r.redlock.newAttempt(), results: make(nodeResults, len(set.nodes))}
	round.askAll(round.sendPeek, unasked)
	err := round.round.await(ctx, func() bool { return round.results.inState(asked) == 0 })
	if err == nil && round.results.inState(free) >= set.majority() {
		return nil, nil
	}
	var reply any
	if err == nil {
		reply, err = round.outcome()
	}
	if err != nil {
		return nil, describe("read", r.key, err)
	}
	held, _, err := parseAcquire(r.key, reply)
	return held, err
}

// Vote is the state of a lock on one node of a [Quorum].
type Vote struct {
	Addr string
	Held bool  // the node had our token when it last answered
	Err  error // why it had not, for instance a [*HeldError], or why the node did not answer; nil before its first answer
}

// Votes returns the vote of each node of a [Quorum.Redlock], in the order of its quorum, and
// nil for other kinds of locks. A node that was not needed for the decision has its
// vote within the node time-out. Every renewal updates the votes.
func (l *Lease) Votes() []Vote {
	if l.isZero() {
		return nil
	}
	if c, ok := l.hold.base.protocol.(*redlockAttempt); ok {
		return c.votes()
	}
	return nil
}

// noQuorumError says which nodes did not take part in a decision. It matches
// [ErrNoQuorum] and the errors of these nodes.
type noQuorumError struct {
	TookPart int    // nodes that took part in the decision
	Needed   int    // nodes that make a quorum
	Votes    []Vote // by node, now; without Held and Err: not asked, or not waited for
}

func (e *noQuorumError) Error() string {
	words := fmt.Sprintf("%v: %d of %d nodes took part, and %d are needed", ErrNoQuorum, e.TookPart, len(e.Votes), e.Needed)
	for i, v := range e.failures() {
		words += fmt.Sprintf("%c %s: %v", ":;"[min(i, 1)], v.Addr, v.Err)
	}
	return words
}

// Unwrap returns ErrNoQuorum and the errors of the nodes that did not take part.
func (e *noQuorumError) Unwrap() []error {
	errs := []error{ErrNoQuorum}
	for _, v := range e.failures() {
		errs = append(errs, v.Err)
	}
	return errs
}

// failures returns the nodes that did not take part. A node on which another token
// holds the lock did.
func (e *noQuorumError) failures() []Vote {
	var out []Vote
	for _, v := range e.Votes {
		if v.Err != nil && !errors.Is(v.Err, ErrHeld) {
			out = append(out, v)
		}
	}
	return out
}

// redlockKey is the key of a [Quorum.Redlock] on the nodes of its quorum. All attempts
// share it.
type redlockKey struct {
	set         *nodeSet
	core        *core
	key         string
	fenceKeys   []string // the fence counter; empty if the lock has no fence
	freeChannel string
	firstNode   *scriptProtocol // of the copy on the first node, where waiting processes register
	nodeTimeout time.Duration   // bounds the wait for one node
}

// redlockAttempt implements [protocol] for one token: the attempt that acquires it
// and, on success, the hold. It never waits for a node longer than nodeTimeout.
//
// After releaseCopies it sends no command that can create a copy, and the release
// is behind all commands that it sent before.
type redlockAttempt struct {
	redlock *redlockKey
	states  []nodeState // by node
	token   string      // set by startAcquire, which comes first; guarded by mu for callers of undo

	mu        sync.Mutex
	expiresBy time.Time     // no copy outlives this moment
	releasing *releaseRound // nil before releaseCopies
}

func (k *redlockKey) newAttempt() *redlockAttempt {
	a := &redlockAttempt{redlock: k, states: make([]nodeState, len(k.set.nodes))}
	for i, n := range k.set.nodes {
		a.states[i].Transport, a.states[i].node = n, n
	}
	return a
}

// acquire implements [protocol]. It sends the first command; the wait for the
// reply sends the others.
func (a *redlockAttempt) acquire(_ context.Context, token string, ttl time.Duration, _ int) future {
	return a.startAcquire(token, ttl, false, nil)
}

// startAcquire is acquire. With free set it assumes that the lock is free. If the first
// node holds the lock for another token, the process registers there in q; nil = it does
// not wait for messages.
func (a *redlockAttempt) startAcquire(token string, ttl time.Duration, free bool, q *waitQueue) future {
	a.mu.Lock()
	a.token = token
	a.mu.Unlock()
	a.extendExpiry(ttl)
	return newAcquireRound(a, ttl, free, q)
}

// extendExpiry notes that a copy with this TTL may be created now.
func (a *redlockAttempt) extendExpiry(ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if end := time.Now().Add(ttl); end.After(a.expiresBy) {
		a.expiresBy = end
	}
}

// extend implements [protocol]. It extends the copy on each node that has one, or
// may have one; only these nodes decide. On the other nodes it creates the copy
// again, which counts from the next extension on. So one node that lost its copy
// gets it back, but a lock that most nodes lost stays lost.
func (a *redlockAttempt) extend(_ context.Context, _ transport.Transport, _ string, ttl time.Duration) future {
	a.extendExpiry(ttl)
	x := &ballot{lost: int64(0)}
	x.round = a.newRound(x.count, len(a.states))
	repair := a.newRound(nil, len(a.states))
	extend, acquire := a.extendCmd(ttl), a.acquireCmd(ttl, nil)
	for i := range a.states {
		if a.states[i].probablyHeld() {
			x.round.send(i, extend)
		} else {
			x.gone++
			a.states[i].onSend()
			repair.send(i, acquire)
		}
	}
	return x
}

// release implements [protocol].
func (a *redlockAttempt) release(context.Context, string, int) future {
	return a.releaseCopies(a.redlock.freeChannel)
}

// undo replaces [core.releaseUntil].
func (a *redlockAttempt) undo() { a.releaseCopies(a.redlock.freeChannel) }

func (a *redlockAttempt) channel() string { return a.redlock.freeChannel }

func (a *redlockAttempt) lockKey() string { return a.redlock.key }

// releaseCopies releases all copies and publishes the release on channel, if it is
// not empty. Only the first call sends something. A node that does not answer in
// time gets the command again until it answers or its copy has expired.
func (a *redlockAttempt) releaseCopies(channel string) *releaseRound {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.releasing == nil {
		a.releasing = newReleaseRound(a, channel, a.expiresBy)
	}
	return a.releasing
}

// votes returns what each node said last.
func (a *redlockAttempt) votes() []Vote {
	votes := make([]Vote, len(a.states))
	for i := range a.states {
		votes[i] = a.states[i].vote()
	}
	return votes
}

// ballot counts the nodes that have done what a round asks for, and those without a copy.
type ballot struct {
	round    *round
	done     int
	gone     int
	lost     any  // the reply if too few nodes have a copy
	releases bool // it is done also if a majority has no copy now
}

// wait implements [future]. The lock is lost once too few nodes have a copy. If nodes only
// do not answer, a later request may succeed. A lock is free if too few nodes may have a copy,
// although it is not known whether it was lost before.
func (b *ballot) wait(ctx context.Context) (any, error) {
	set := b.round.attempt.redlock.set
	done := func() bool { return b.done >= set.majority() }
	lost := func() bool { return len(set.nodes)-b.gone < set.majority() }
	err := b.round.await(ctx, func() bool { return done() || lost() })
	switch {
	case err != nil:
		return nil, err
	case lost() && !done():
		return b.lost, nil
	case done() || b.releases && b.done+b.gone >= set.majority():
		return int64(1), nil
	}
	return nil, b.round.noQuorumError(b.done)
}

// count takes a reply. One without an error may still say that the node had no copy to release.
func (b *ballot) count(reply nodeReply) {
	switch {
	case reply.err == nil && (!b.releases || reply.reply != nil):
		b.done++
	case reply.err == nil || errors.Is(reply.err, errCopyGone) || errors.Is(reply.err, errReleasing):
		b.gone++
	}
}

// releaseRound releases all copies of an attempt. It goes on in the background
// when its caller stops waiting.
type releaseRound struct {
	ballot
	channel   string    // the release is published here; empty = nowhere
	expiresBy time.Time // no copy outlives this moment
}

// newReleaseRound sends the release to every node that may have a copy.
func newReleaseRound(a *redlockAttempt, channel string, expiresBy time.Time) *releaseRound {
	r := &releaseRound{ballot: ballot{releases: true}, channel: channel, expiresBy: expiresBy}
	r.round = a.newRound(r.count, len(a.states))
	first, others := a.releaseCmd(channel, true), a.releaseCmd(channel, false)
	first.afterReply, others.afterReply = r.retryUntilExpired, r.retryUntilExpired
	for i := len(a.states) - 1; i >= 0; i-- { // the first node, which wakes a process, at last
		release := others
		if i == 0 {
			release = first
		}
		if a.states[i].closeAcquires() {
			r.round.send(i, release)
		} else {
			r.gone++
		}
	}
	return r
}

// retryUntilExpired sends the release of one copy again until the node answers or
// the copy has expired. If the reply to an earlier acquire is missing, two answers
// are needed: after a broken connection the first release may have overtaken that
// acquire, which was still in a buffer of the server.
func (r *releaseRound) retryUntilExpired(s *nodeState, request *call) {
	a := r.round.attempt
	core := a.redlock.core
	ctx, cancel := context.WithDeadline(core.alive, r.expiresBy)
	defer cancel()
	for answers, pause := 0, undoPause; ; pause = min(2*pause, maxUndoPause) {
		_, err := request.wait(ctx)
		s.onRelease(err)
		if err == nil || !transient(err) {
			answers++
		}
		if answers == 2 || !s.mayHold() || !sleep(ctx, pause) {
			return
		}
		request = mutexScripts.release.send(ctx, s.node, []string{a.redlock.key}, a.token, r.channel)
	}
}
