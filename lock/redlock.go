package lock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

var (
	//go:embed redlock_raise.lua
	redlockRaiseSource string

	redlockRaise = newScript(redlockRaiseSource)
)

// Redlock is a lock over independent servers. Its holder is the token that is stored
// on more than half of them, with time left. The loss of fewer than half of the
// servers neither stops the lock nor frees it. It is not reentrant. The algorithm is
// that of https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
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
// Each node stores what a [Mutex] stores: `SET key token NX PX ttl`.
type Redlock struct {
	base
	redlock *redlockKey
}

var _ Locker = (*Redlock)(nil)

// Redlock returns the lock with this key, which is the same on every node. It sends
// nothing. Lock and TryLock return [ErrArgument] for options that cannot work.
func (q *Quorum) Redlock(key string, o Options) *Redlock {
	t := q.client.newBase(key, o, nil)
	k := &redlockKey{set: q.nodes, core: q.client.core, key: key, fenceKeys: keysOf(key, o.Fence)[1:],
		freeChannel: companionKey(key, "free"), nodeTimeout: q.nodeTimeout(t.opts.TTL)}
	t.protocol = &redlockAttempt{redlock: k} // each call makes an attempt of its own
	return &Redlock{t, k}
}

// TryLock implements [Locker]. It takes two round trips: one to the first node, one
// to the others. A fence takes a third one if the counters of the nodes differ. If
// too few nodes answer, the error matches [ErrNoQuorum] and not [ErrHeld]: the lock
// may be free.
func (r *Redlock) TryLock(ctx context.Context) (*Lease, error) {
	return r.tryLock(ctx, &request{try: r.attempt})
}

// Lock implements [Locker]. It subscribes to releases on the first node. It also
// tries again after a random time of one to five node time-outs, so it works without
// that node.
func (r *Redlock) Lock(ctx context.Context) (*Lease, error) {
	return r.lock(ctx, &request{try: r.attempt})
}

// attempt asks the nodes once.
func (r *Redlock) attempt(ctx context.Context, req *request) (*Lease, error) {
	req.pollEvery = randomBetween(r.redlock.nodeTimeout, 5*r.redlock.nodeTimeout)
	if err := r.redlock.set.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("acquire", r.key, err)
	}
	t, c := r.base, r.redlock.newAttempt()
	t.protocol = c
	free := req.attempts == 0 && !req.contended
	h, err := t.acquireOnceBy(ctx, req, func(token string) future { return c.startAcquire(token, t.opts.TTL, free) })
	if err != nil {
		return nil, err
	}
	return newLease(h), nil
}

// Holder returns the token that holds the lock on the most nodes and for how long yet,
// nil if the lock is free. It acquires nothing. If too few nodes answer, the error
// matches [ErrNoQuorum].
func (r *Redlock) Holder(ctx context.Context) (*HeldError, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	if err := r.redlock.set.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("look at", r.key, err)
	}
	set := r.redlock.set
	round := &acquireRound{attempt: r.redlock.newAttempt(), results: make(nodeResults, len(set.nodes))}
	round.askAll(round.sendPeek, unasked)
	err := round.await(ctx, func() bool { return round.results.inState(asked) == 0 })
	if err == nil && round.results.inState(free) >= set.majority() {
		return nil, nil
	}
	var reply any
	if err == nil {
		reply, err = round.outcome()
	}
	if err != nil {
		return nil, describe("look at", r.key, err)
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

// Votes returns the vote of each node of a [Redlock], in the order of its quorum, and
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

// NoQuorumError says which nodes did not take part in a decision. It matches
// [ErrNoQuorum] and the errors of these nodes.
type NoQuorumError struct {
	Key    string
	Needed int    // nodes that make a quorum
	Votes  []Vote // by node; without Held and Err: not asked, or not waited for
}

func (e *NoQuorumError) Error() string {
	failures := e.failures()
	var words []string
	for _, v := range failures {
		words = append(words, fmt.Sprintf("%s: %v", v.Addr, v.Err))
	}
	return fmt.Sprintf("%v: %d of %d nodes are out, and %d are needed: %s",
		ErrNoQuorum, len(failures), len(e.Votes), e.Needed, strings.Join(words, "; "))
}

// Unwrap returns ErrNoQuorum and the errors of the nodes that did not take part.
func (e *NoQuorumError) Unwrap() []error {
	errs := []error{ErrNoQuorum}
	for _, v := range e.failures() {
		errs = append(errs, v.Err)
	}
	return errs
}

// failures returns the nodes that did not take part. A node on which another token
// holds the lock did.
func (e *NoQuorumError) failures() []Vote {
	var out []Vote
	for _, v := range e.Votes {
		if v.Err != nil && !errors.Is(v.Err, ErrHeld) {
			out = append(out, v)
		}
	}
	return out
}
