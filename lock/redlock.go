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

// Redlock is a lock over independent servers: it is held by whoever has its token
// on more than half of them, with time left. Losing fewer than half of the servers
// neither stops it nor frees it. It is not reentrant.
//
// Its deadline counts from before the first node was asked. It is extended by a
// quorum or not at all, and a lease that cannot be extended in time is lost and
// its copies are released. A node that came back empty gets its copy again as long
// as the lease is valid.
//
// It rests on servers that keep what they granted and on clocks of about the same
// speed. A server that forgets (a restart without its data), and one whose clock
// is set forward by more than a TTL, give their vote away: when that happens to as
// many nodes as a holder can spare, nobody notices; when it happens to one more, a
// second holder gets in. [QuorumConfig.MinUptime] guards against the first; only
// a resource that checks the numbers of [Lease.Fence] guards against both. For that
// the counter of a server that has none begins at the server's time, in µs: then the
// numbers rise also when servers have forgotten them, unless their clocks were set
// back since.
//
// On the wire it is on each node what a [Mutex] is: `SET key token NX PX ttl`.
type Redlock struct {
	base
	redlock *redlockKey
}

var _ Locker = (*Redlock)(nil)

// Redlock returns the lock of that name; the key is used as it is on every node.
// It sends nothing. Options that cannot work are reported as [ErrArgument] by Lock
// and TryLock.
func (q *Quorum) Redlock(key string, o Options) *Redlock {
	t := q.client.newBase(key, o, nil)
	v := &redlockKey{nodeSet: q.nodes, core: q.client.core, key: key, fenceKeys: keysOf(key, o.Fence)[1:],
		freeChannel: companionKey(key, "free"), nodeTimeout: q.nodeTimeout(t.opts.TTL)}
	t.protocol = &redlockAttempt{redlockKey: v} // those that are asked for have sites
	return &Redlock{t, v}
}

// TryLock implements [Locker]. It takes two round trips, one to the first node and
// one to the others, and another with a fence if the nodes' counters have drifted
// apart. If a quorum cannot be asked the error matches [ErrNoQuorum], which is not
// [ErrHeld]: the lock may well be free.
func (r *Redlock) TryLock(ctx context.Context) (*Lease, error) {
	return r.tryLock(ctx, &request{try: r.attempt})
}

// Lock implements [Locker]. It listens for the release on the first node, and
// tries again by itself after a random time of a few node time-outs, so that a
// node more or less does not matter.
func (r *Redlock) Lock(ctx context.Context) (*Lease, error) {
	return r.lock(ctx, &request{try: r.attempt})
}

// attempt asks the nodes once, with copies of its own.
func (r *Redlock) attempt(ctx context.Context, req *request) (*Lease, error) {
	req.pollEvery = randomBetween(r.redlock.nodeTimeout, 5*r.redlock.nodeTimeout)
	if err := r.redlock.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("acquire", r.key, err)
	}
	t, c := r.base, r.redlock.newAttempt()
	t.protocol = c
	free := req.attempts == 0 && !req.contended
	h, err := t.acquireBy(ctx, req, func(token string) future { return c.startAcquire(token, t.opts.TTL, free) })
	if err != nil {
		return nil, err
	}
	return newLease(h), nil
}

// Holder returns who holds the lock by most nodes and for how long yet, nil if nobody
// does. It takes nothing. If a quorum cannot be asked the error matches [ErrNoQuorum].
func (r *Redlock) Holder(ctx context.Context) (*HeldError, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	if err := r.redlock.connectAll(ctx, r.client.core, r.redlock.nodeTimeout); err != nil {
		return nil, describe("look at", r.key, err)
	}
	c := r.redlock.newAttempt()
	e := &acquireRound{redlockAttempt: c, results: make(nodeResults, len(c.nodes))}
	e.askAll(e.sendPeek, unasked)
	err := e.await(ctx, func() bool { return e.results.count(asked) == 0 })
	if err == nil && e.results.count(free) >= e.majority() {
		return nil, nil
	}
	var reply any
	if err == nil {
		reply, err = e.outcome()
	}
	if err != nil {
		return nil, describe("look at", r.key, err)
	}
	held, _, err := parseAcquire(r.key, reply)
	return held, err
}

// Vote is what one node of a [Quorum] has to do with a lock.
type Vote struct {
	Addr string
	Held bool  // our token was there when the node last answered
	Err  error // why not, a [*HeldError] for instance, or why the node did not answer; may be nil before it did
}

// Votes returns, for a [Redlock], what is known of each node, in their order; for
// other kinds nil. Nodes that were not waited for because the others had decided
// come in within the node time-out, and every renewal brings news.
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
// [ErrNoQuorum] and what those nodes' errors match.
type NoQuorumError struct {
	Key    string
	Needed int    // nodes that make a quorum
	Votes  []Vote // by node; those with neither Held nor Err were not asked, or not waited for
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

// Unwrap returns ErrNoQuorum and the errors of the nodes that had no say.
func (e *NoQuorumError) Unwrap() []error {
	errs := []error{ErrNoQuorum}
	for _, v := range e.failures() {
		errs = append(errs, v.Err)
	}
	return errs
}

// failures returns the nodes that had no say: one where somebody else holds the
// lock had.
func (e *NoQuorumError) failures() []Vote {
	var out []Vote
	for _, v := range e.Votes {
		if v.Err != nil && !errors.Is(v.Err, ErrHeld) {
			out = append(out, v)
		}
	}
	return out
}
