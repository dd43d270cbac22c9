package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// redlockKey is the key of a [Redlock] on the nodes of its quorum. All attempts
// share it.
type redlockKey struct {
	set         *nodeSet
	core        *core
	key         string
	fenceKeys   []string // the fence counter; empty if the lock has no fence
	freeChannel string
	nodeTimeout time.Duration // bounds the wait for one node
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
	return a.startAcquire(token, ttl, false)
}

// startAcquire is acquire. With free set it assumes that the lock is free.
func (a *redlockAttempt) startAcquire(token string, ttl time.Duration, free bool) future {
	a.mu.Lock()
	a.token = token
	a.mu.Unlock()
	a.extendExpiry(ttl)
	return newAcquireRound(a, ttl, free)
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
func (a *redlockAttempt) extend(_ context.Context, _ string, ttl time.Duration) future {
	a.extendExpiry(ttl)
	x := &extension{}
	x.round = a.newRound(x, len(a.states))
	repair := a.newRound(nil, len(a.states))
	extend, acquire := a.extendCmd(ttl), a.acquireCmd(ttl, nil)
	for i := range a.states {
		if a.states[i].probablyHeld() {
			x.round.send(i, extend)
		} else {
			x.round.record(nodeReply{node: i, err: errCopyGone})
			a.states[i].onSend()
			repair.send(i, acquire)
		}
	}
	x.round.allSent()
	repair.allSent()
	return x
}

// release implements [protocol].
func (a *redlockAttempt) release(context.Context, string, int) future {
	return a.releaseCopies(a.redlock.freeChannel)
}

// undo implements [undoer].
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

// extension extends the copies of an attempt. It succeeds if a quorum of nodes had
// a copy and extended it.
type extension struct {
	round    *round
	extended int
	gone     int // nodes without a copy
}

// count implements [counter].
func (x *extension) count(reply nodeReply) {
	switch {
	case reply.err == nil:
		x.extended++
	case errors.Is(reply.err, errCopyGone) || errors.Is(reply.err, errReleasing):
		x.gone++
	}
}

// wait implements [future]. The lock is lost once too few nodes have a copy. If
// nodes only do not answer, a later extension may succeed.
func (x *extension) wait(ctx context.Context) (any, error) {
	set := x.round.attempt.redlock.set
	extended := func() bool { return x.extended >= set.majority() }
	lost := func() bool { return len(set.nodes)-x.gone < set.majority() }
	err := x.round.await(ctx, func() bool { return extended() || lost() })
	switch {
	case err != nil:
		return nil, err
	case extended():
		return int64(1), nil
	case lost():
		return int64(0), nil
	}
	return nil, x.round.noQuorumError()
}

// releaseRound releases all copies of an attempt. It goes on in the background
// when its caller stops waiting.
type releaseRound struct {
	round     *round
	channel   string    // the release is published here; empty = nowhere
	expiresBy time.Time // no copy outlives this moment

	released int
	gone     int // nodes without a copy
}

// newReleaseRound sends the release to every node that may have a copy.
func newReleaseRound(a *redlockAttempt, channel string, expiresBy time.Time) *releaseRound {
	r := &releaseRound{channel: channel, expiresBy: expiresBy}
	r.round = a.newRound(r, len(a.states))
	release := a.releaseCmd(channel)
	release.afterReply = r.retryUntilExpired
	for i := range a.states {
		if a.states[i].closeAcquires() {
			r.round.send(i, release)
		} else {
			r.round.record(nodeReply{node: i})
		}
	}
	r.round.allSent()
	return r
}

// count implements [counter].
func (r *releaseRound) count(reply nodeReply) {
	switch {
	case reply.err == nil && reply.reply != nil:
		r.released++
	case reply.err == nil:
		r.gone++
	}
}

// retryUntilExpired sends the release of one copy again until the node answers or
// the copy has expired. If the reply to an earlier acquire is missing, two answers
// are needed: after a broken connection the first release may have overtaken that
// acquire, which was still in a buffer of the server.
func (r *releaseRound) retryUntilExpired(c *nodeCall) {
	a, s, request := r.round.attempt, c.state(), &c.call
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

// wait implements [future].
func (r *releaseRound) wait(ctx context.Context) (any, error) {
	set := r.round.attempt.redlock.set
	freed := func() bool { return r.released >= set.majority() }
	lost := func() bool { return len(set.nodes)-r.gone < set.majority() }
	err := r.round.await(ctx, func() bool { return freed() || lost() })
	switch {
	case err != nil:
		return nil, err
	case freed():
		return int64(1), nil
	case lost():
		return nil, nil
	}
	return nil, r.round.noQuorumError()
}
