package lock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// acquireRound asks a quorum of nodes for the lock.
//
// It asks one node first, and the others together once that node has granted the
// lock. When many clients start at the same time, this first node picks one of them, which
// then has no rival on the others; if all nodes were asked at the same time, they would
// split their votes. If the first node does not answer, the next one takes its
// place. If another token holds the lock there, the round only peeks at the other
// nodes: usually that token has a quorum. If it has none, not even a little later,
// the round asks the free nodes.
//
// The order only decides how soon a client wins. That no two clients win at the same time
// rests on the majority alone.
type acquireRound struct {
	attempt    *redlockAttempt
	ttl        time.Duration
	optimistic bool   // the lock is probably free
	round      *round // the newest one
	results    nodeResults
	order      []int
	firstNode  int          // −1 = no node is left to ask
	queue      *waitQueue   // in which the process registers on node 0; nil = it does not
	waiter     *registering // nil = node 0 was not asked with queue yet
	registered []any        // the refusal by which node 0 has registered the process; nil = it has not

	trySetCommand, acquireCommand, peekCommand *nodeCommand // nil before their first use
}

func newAcquireRound(a *redlockAttempt, ttl time.Duration, optimistic bool, q *waitQueue) *acquireRound {
	set := a.redlock.set
	r := &acquireRound{attempt: a, ttl: ttl, optimistic: optimistic, results: make(nodeResults, len(set.nodes)), order: set.askOrder()}
	if q != nil && q.subscribedBoth() {
		r.queue = q
	}
	r.askNext()
	return r
}

// wait implements [future]. Without a quorum it releases the copies and publishes
// nothing: waiters would only wake each other by failing.
func (r *acquireRound) wait(ctx context.Context) (any, error) {
	set := r.attempt.redlock.set
	err := r.run(ctx)
	if err == nil && r.results.inState(granted) >= set.majority() {
		err = r.raiseFence(ctx)
		if err == nil {
			err = set.checkDuplicates() // a node may have connected only now
		}
		if err == nil {
			if r.waiter != nil {
				r.waiter.onGrant(0)
			}
			return r.results.topFence(), nil
		}
	} else if err == nil && r.waiter != nil {
		r.waiter.onRefusal(r.registered)
	}
	r.attempt.releaseCopies("")
	if err != nil {
		return nil, err
	}
	return r.outcome()
}

// run asks nodes until the outcome is certain. The first node has been asked before.
func (r *acquireRound) run(ctx context.Context) error {
	for checked := false; r.firstNode >= 0; r.askNext() {
		if err := r.round.await(ctx, func() bool { return r.results[r.firstNode].state != asked }); err != nil {
			return err
		}
		switch r.results[r.firstNode].state {
		case granted:
			r.askAll(r.sendAcquire, unasked)
			return r.round.await(ctx, r.decided)
		case heldByOther:
			if checked {
				return nil // a second node is held: this is no stray copy
			}
			checked, r.optimistic = true, false
			if err := r.checkHolder(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// askNext asks the next node for the lock, if a quorum is still possible.
func (r *acquireRound) askNext() {
	r.firstNode = -1
	if r.hopeless() {
		return
	}
	next := func(i int) bool { return r.results[i].state == unasked }
	if at := slices.IndexFunc(r.order, next); at >= 0 {
		r.firstNode = r.order[at]
		r.round = r.attempt.newRound(r.count, 1)
		r.sendAcquire(r.firstNode)
	}
}

// checkHolder finds out whether the holder on the first node has a quorum. A holder
// without one may be about to get it: only if it still has none after nodeTimeout,
// the free nodes can be asked.
func (r *acquireRound) checkHolder(ctx context.Context) error {
	r.askAll(r.sendPeek, unasked)
	if err := r.round.await(ctx, r.decided); err != nil || r.hopeless() {
		return err
	}
	limit := r.attempt.redlock.nodeTimeout
	for pause := limit/64 + 1; pause < limit; pause *= 2 {
		if !sleep(ctx, randomBetween(pause, 2*pause)) {
			return ctx.Err()
		}
		r.askAll(r.sendPeek, asked, heldByOther, free)
		known := func() bool { return r.decided() && r.results[r.firstNode].state != asked }
		if err := r.round.await(ctx, known); err != nil || r.hopeless() {
			return err
		}
	}
	r.askFree()
	return nil
}

// askFree marks the free nodes, and after them those that have not answered, as not
// asked yet.
func (r *acquireRound) askFree() {
	unfree := func(i int) int {
		if r.results[i].state == free {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(r.order, func(a, b int) int { return unfree(a) - unfree(b) })
	for i := range r.results {
		if s := r.results[i].state; s == asked || s == free {
			r.results[i] = nodeResult{}
		}
	}
}

// askAll calls send for all nodes in these states, as one round.
func (r *acquireRound) askAll(send func(node int), in ...nodeOutcome) {
	r.round = r.attempt.newRound(r.count, r.results.inState(in...))
	for i := range r.results {
		if slices.Contains(in, r.results[i].state) {
			send(i)
		}
	}
}

// sendAcquire asks a node for the lock: by SET NX if the lock is probably free and
// the node has run the release script before.
func (r *acquireRound) sendAcquire(i int) {
	s := &r.attempt.states[i]
	s.onSend()
	r.results[i] = nodeResult{state: asked}
	if r.optimistic && len(r.attempt.redlock.fenceKeys) == 0 && s.node.scripted.Load() {
		if r.trySetCommand == nil {
			r.trySetCommand = r.attempt.trySetCmd(r.ttl)
		}
		r.round.send(i, r.trySetCommand)
		return
	}
	if i == 0 && r.queue != nil && r.waiter == nil {
		r.waiter = r.attempt.redlock.firstNode.register(r.attempt.token, r.queue, false, func(waiter ...any) *call {
			r.round.send(i, r.attempt.acquireCmd(r.ttl, r.attempt.redlock.fenceKeys, waiter...))
			return nil
		})
		return
	}
	if r.acquireCommand == nil {
		r.acquireCommand = r.attempt.acquireCmd(r.ttl, r.attempt.redlock.fenceKeys)
	}
	r.round.send(i, r.acquireCommand)
}

// sendPeek asks a node for the holder.
func (r *acquireRound) sendPeek(i int) {
	r.results[i] = nodeResult{state: asked}
	if r.peekCommand == nil {
		r.peekCommand = r.attempt.peekCmd()
	}
	r.round.send(i, r.peekCommand)
}

// count takes a reply.
func (r *acquireRound) count(reply nodeReply) {
	r.results[reply.node] = newNodeResult(reply)
	if fields, _ := reply.reply.([]any); len(fields) == 4 {
		r.registered = fields
	}
}

// hopeless reports whether too few nodes can still grant the lock.
func (r *acquireRound) hopeless() bool {
	return r.results.inState(unasked, asked, free, granted) < r.attempt.redlock.set.majority()
}

// decided reports whether further replies cannot change the outcome.
func (r *acquireRound) decided() bool {
	set := r.attempt.redlock.set
	spare := len(set.nodes) - set.majority()
	return r.results.inState(granted) >= set.majority() || r.results.inState(free) >= set.majority() ||
		r.results.inState(heldByOther) > spare || r.results.inState(failed) > spare || r.results.inState(asked) == 0
}

// outcome returns why the round has no quorum: the lock is held, unless too many
// nodes failed.
func (r *acquireRound) outcome() (any, error) {
	set := r.attempt.redlock.set
	if r.results.inState(failed) > len(set.nodes)-set.majority() {
		return nil, r.round.noQuorumError(r.results.inState(granted, heldByOther, free))
	}
	token, ttl := r.results.holder(set.majority())
	return []any{token, ttl.Milliseconds()}, nil
}

// raiseFence raises the counter of a quorum to the fencing token that the caller
// gets. The next holder needs the vote of at least one of these nodes. Otherwise the
// largest counter of its quorum could be smaller than the largest of this one.
func (r *acquireRound) raiseFence(ctx context.Context) error {
	if len(r.attempt.redlock.fenceKeys) == 0 {
		return nil
	}
	top := r.results.topFence()
	raise := &ballot{} // of the counters
	round, cmd := r.attempt.newRound(raise.count, len(r.results)), r.attempt.raiseFenceCmd(top)
	for i, result := range r.results {
		if result.fence == top {
			raise.done++
		} else if result.state != failed {
			round.send(i, cmd)
		}
	}
	enough := func() bool { return raise.done >= r.attempt.redlock.set.majority() }
	if err := round.await(ctx, enough); err != nil {
		return err
	}
	if !enough() {
		return round.noQuorumError(raise.done)
	}
	return nil
}

// nodeResult is what one node replied.
type nodeResult struct {
	state  nodeOutcome
	holder *HeldError // with heldByOther
	fence  int64
}

// nodeResults are the results by node.
type nodeResults []nodeResult

type nodeOutcome uint8

const (
	unasked nodeOutcome = iota
	asked               // no answer yet
	granted
	heldByOther // another token holds the lock on the node
	failed      // no answer in time, an error, or a node without a vote
	free        // not asked for the lock; no token holds it there
)

// newNodeResult reads a reply. The reply to an acquire is the fencing token, to SET OK.
func newNodeResult(reply nodeReply) nodeResult {
	fence, fenced := reply.reply.(int64)
	var held *HeldError
	switch {
	case errors.As(reply.err, &held):
		return nodeResult{state: heldByOther, holder: held}
	case reply.err != nil:
		return nodeResult{state: failed}
	case fenced || reply.reply == "OK":
		return nodeResult{state: granted, fence: fence}
	}
	return nodeResult{state: free}
}

// inState returns the number of nodes in one of these states.
func (all nodeResults) inState(states ...nodeOutcome) int {
	n := 0
	for _, b := range all {
		if slices.Contains(states, b.state) {
			n++
		}
	}
	return n
}

// holder returns the token that holds the lock on the most nodes, and for how long
// it has a quorum yet.
func (all nodeResults) holder(majority int) (token string, ttl time.Duration) {
	copies := make(map[string][]time.Duration)
	for _, b := range all {
		if b.holder != nil {
			copies[b.holder.Token] = append(copies[b.holder.Token], b.holder.TTL)
		}
	}
	for candidate, ttls := range copies {
		if len(ttls) > len(copies[token]) {
			token = candidate
		}
	}
	return token, quorumTTL(copies[token], majority)
}

// quorumTTL returns for how long a quorum of copies exists, less the allowance for
// clock drift. Negative = for ever.
func quorumTTL(ttls []time.Duration, majority int) time.Duration {
	lasting := func(ttl time.Duration) time.Duration {
		if ttl < 0 {
			return math.MaxInt64
		}
		return ttl
	}
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(lasting(b), lasting(a)) })
	ttl := ttls[min(majority, len(ttls))-1]
	if ttl < 0 {
		return ttl
	}
	return max(usableTTL(ttl), 0)
}

// topFence returns the largest fencing token that was granted.
func (all nodeResults) topFence() int64 {
	var top int64
	for _, b := range all {
		top = max(top, b.fence)
	}
	return top
}
