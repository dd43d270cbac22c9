package lock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// acquireRound is an attempt to get the votes of a quorum.
//
// One node is asked first, and the others together once it has agreed. When many
// start at once, this arbiter picks one of them, who then meets no rival; asked
// all together, the nodes would split their votes. If the arbiter does not answer,
// the next node takes its place. If it says that somebody else has the lock, the
// others are only looked at: usually they agree. If they do not, even a little
// later, the arbiter's word is one vote of many, and the free ones are asked.
//
// All of this is about how soon somebody wins. That nobody else does at the same
// time rests on the majority alone.
type acquireRound struct {
	*redlockAttempt
	ttl        time.Duration
	optimistic bool   // the lock is probably free
	round      *round // of the nodes that are being asked
	results    nodeResults
	order      []int
	firstNode  int // −1 = nobody is left to ask

	trySetCommand, acquireCommand, peekCommand *nodeCommand // once asked
}

func newAcquireRound(c *redlockAttempt, ttl time.Duration, eager bool) *acquireRound {
	e := &acquireRound{redlockAttempt: c, ttl: ttl, optimistic: eager, results: make(nodeResults, len(c.nodes)), order: c.nodeSet.askOrder()}
	e.askNext()
	return e
}

// resendIfNeeded implements [pending]. An election cannot be settled without its answers.
func (e *acquireRound) resendIfNeeded(context.Context) error { return nil }

// wait implements [pending]. Unless the election is won the copies are handed back,
// without a word to those who wait: they would keep waking each other by failing.
func (e *acquireRound) wait(ctx context.Context) (any, error) {
	err := e.run(ctx)
	if err == nil && e.results.count(granted) >= e.majority() {
		err = e.raiseFence(ctx)
		if err == nil {
			err = e.checkDuplicates() // some may have been met just now
		}
		if err == nil {
			return e.results.topFence(), nil
		}
	}
	e.releaseCopies("")
	if err != nil {
		return nil, err
	}
	return e.outcome()
}

// run asks until it is certain how the election ends. Whoever is the arbiter has
// been asked already.
func (e *acquireRound) run(ctx context.Context) error {
	for overruled := false; e.firstNode >= 0; e.askNext() {
		if err := e.await(ctx, func() bool { return e.results[e.firstNode].state != asked }); err != nil {
			return err
		}
		switch e.results[e.firstNode].state {
		case granted:
			e.askAll(e.sendAcquire, unasked)
			return e.await(ctx, e.decided)
		case heldByOther:
			if overruled {
				return nil // it is not one stray copy
			}
			overruled, e.optimistic = true, false
			if err := e.checkHolder(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// askNext asks the next node for the lock, unless there is none or it is no use.
func (e *acquireRound) askNext() {
	e.firstNode = -1
	if e.hopeless() {
		return
	}
	next := func(i int) bool { return e.results[i].state == unasked }
	if at := slices.IndexFunc(e.order, next); at >= 0 {
		e.firstNode = e.order[at]
		e.round = e.newRound(e, 1)
		e.sendAcquire(e.firstNode)
		e.round.allSent()
	}
}

// checkHolder looks whether whoever has the lock at the arbiter has a quorum. If not,
// it may be about to get one: only if it still has not after a node time-out, the
// free nodes can be asked.
func (e *acquireRound) checkHolder(ctx context.Context) error {
	e.askAll(e.sendPeek, unasked)
	if err := e.await(ctx, e.decided); err != nil || e.hopeless() {
		return err
	}
	for pause := e.nodeTimeout/64 + 1; pause < e.nodeTimeout; pause *= 2 {
		if !sleep(ctx, randomBetween(pause, 2*pause)) {
			return ctx.Err()
		}
		e.askAll(e.sendPeek, asked, heldByOther, free)
		known := func() bool { return e.decided() && e.results[e.firstNode].state != asked }
		if err := e.await(ctx, known); err != nil || e.hopeless() {
			return err
		}
	}
	e.askFree()
	return nil
}

// askFree lets the free nodes be asked, and after them those that have not said
// whether they are.
func (e *acquireRound) askFree() {
	unfree := func(i int) int {
		if e.results[i].state == free {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(e.order, func(a, b int) int { return unfree(a) - unfree(b) })
	for i := range e.results {
		if s := e.results[i].state; s == asked || s == free {
			e.results[i] = nodeResult{}
		}
	}
}

// askAll puts a question to the nodes in these states, together.
func (e *acquireRound) askAll(question func(node int), in ...nodeOutcome) {
	e.round = e.newRound(e, e.results.count(in...))
	for i := range e.results {
		if slices.Contains(in, e.results[i].state) {
			question(i)
		}
	}
	e.round.allSent()
}

// sendAcquire asks a node for the lock: by a bid, if it is probably free, and the node is
// known to run the script that gives it back.
func (e *acquireRound) sendAcquire(i int) {
	s := &e.states[i]
	s.onSend()
	e.results[i] = nodeResult{state: asked}
	if e.optimistic && len(e.fenceKeys) == 0 && s.scripted.Load() {
		if e.trySetCommand == nil {
			e.trySetCommand = e.trySetCmd(e.ttl)
		}
		e.round.ask(i, e.trySetCommand)
		return
	}
	if e.acquireCommand == nil {
		e.acquireCommand = e.redlockAttempt.acquireCmd(e.ttl, e.fenceKeys)
	}
	e.round.ask(i, e.acquireCommand)
}

func (e *acquireRound) sendPeek(i int) {
	e.results[i] = nodeResult{state: asked}
	if e.peekCommand == nil {
		e.peekCommand = e.redlockAttempt.peekCmd()
	}
	e.round.ask(i, e.peekCommand)
}

// count implements [tally].
func (e *acquireRound) count(a nodeReply) { e.results[a.node] = newNodeResult(a) }

// await takes answers in until it is enough.
func (e *acquireRound) await(ctx context.Context, enough func() bool) error {
	return e.round.await(ctx, enough)
}

// hopeless reports whether the nodes that may still agree are too few.
func (e *acquireRound) hopeless() bool {
	return e.results.count(unasked, asked, free, granted) < e.majority()
}

// decided reports whether further answers would not change the outcome.
func (e *acquireRound) decided() bool {
	spare := len(e.nodes) - e.majority()
	return e.results.count(granted) >= e.majority() || e.results.count(free) >= e.majority() ||
		e.results.count(heldByOther) > spare || e.results.count(failed) > spare || e.results.count(asked) == 0
}

// outcome tells why the election was not won: the lock is held, if a quorum could
// be had but for its holders.
func (e *acquireRound) outcome() (any, error) {
	if e.results.count(failed) > len(e.nodes)-e.majority() {
		return nil, e.round.noQuorumError()
	}
	token, ttl := e.results.holder(e.majority())
	return []any{token, ttl.Milliseconds()}, nil
}

// raiseFence sees to it that a quorum counts on from the fencing token that is
// handed out: whoever is next gets votes from at least one of these nodes.
// Without it the largest of a quorum's counters may be smaller than that of the
// quorum before.
func (e *acquireRound) raiseFence(ctx context.Context) error {
	if len(e.fenceKeys) == 0 {
		return nil
	}
	top := e.results.topFence()
	raise := &fenceRaise{}
	r, question := e.newRound(raise, len(e.states)), e.raiseFenceCmd(top)
	for i, b := range e.results {
		if b.fence == top {
			r.record(nodeReply{node: i})
		} else if b.state != failed {
			r.ask(i, question)
		}
	}
	r.allSent()
	enough := func() bool { return raise.raised >= e.majority() }
	if err := r.await(ctx, enough); err != nil {
		return err
	}
	if !enough() {
		return r.noQuorumError()
	}
	return nil
}

// fenceRaise counts the nodes that count on from a fencing token.
type fenceRaise struct{ raised int }

// count implements [tally].
func (r *fenceRaise) count(a nodeReply) {
	if a.err == nil {
		r.raised++
	}
}

// nodeResult is what one node makes of it.
type nodeResult struct {
	state  nodeOutcome
	holder *HeldError // who has the lock there, if it was taken
	fence  int64
}

// nodeResults are those of all nodes.
type nodeResults []nodeResult

type nodeOutcome uint8

const (
	unasked nodeOutcome = iota
	asked               // no answer yet
	granted
	heldByOther // somebody else has the lock there
	failed      // did not answer, or has no vote
	free        // has not been asked for the lock, but nobody has it there
)

// newNodeResult reads an answer: to a take it is an integer, the fencing token.
func newNodeResult(a nodeReply) nodeResult {
	fence, grant := a.reply.(int64)
	switch {
	case a.err != nil:
		return failedResult(a.err)
	case grant:
		return nodeResult{state: granted, fence: fence}
	}
	return nodeResult{state: free}
}

// failedResult reads why a node does not agree.
func failedResult(err error) nodeResult {
	var held *HeldError
	if errors.As(err, &held) {
		return nodeResult{state: heldByOther, holder: held}
	}
	return nodeResult{state: failed}
}

// count returns how many nodes are in one of these states.
func (all nodeResults) count(states ...nodeOutcome) int {
	n := 0
	for _, b := range all {
		if slices.Contains(states, b.state) {
			n++
		}
	}
	return n
}

// holder returns who has the most nodes, and for how long it may rely on having
// a quorum of them.
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

// quorumTTL returns how long the longest-lived copies that make a quorum will
// all be there, less the allowance for drift: what their holder may rely on.
// Negative = for ever.
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
