package lock

import (
	"context"
	"slices"
	"time"
)

// election is an attempt to get the votes of a quorum.
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
type election struct {
	*copies
	ttl     time.Duration
	eager   bool   // the lock is probably free
	round   *round // of the nodes that are being asked
	ballots ballots
	order   []int
	arbiter int // −1 = nobody is left to ask

	bidding, taking, looking *question // once asked
}

func newElection(c *copies, ttl time.Duration, eager bool) *election {
	e := &election{copies: c, ttl: ttl, eager: eager, ballots: make(ballots, len(c.nodes)), order: c.ensemble.order()}
	e.askNext()
	return e
}

// settle implements [pending]. An election cannot be settled without its answers.
func (e *election) settle(context.Context) error { return nil }

// wait implements [pending]. Unless the election is won the copies are handed back,
// without a word to those who wait: they would keep waking each other by failing.
func (e *election) wait(ctx context.Context) (any, error) {
	err := e.run(ctx)
	if err == nil && e.ballots.count(granted) >= e.majority() {
		err = e.raiseFence(ctx)
		if err == nil {
			err = e.twins() // some may have been met just now
		}
		if err == nil {
			return e.ballots.topFence(), nil
		}
	}
	e.handBack("")
	if err != nil {
		return nil, err
	}
	return e.verdict()
}

// run asks until it is certain how the election ends. Whoever is the arbiter has
// been asked already.
func (e *election) run(ctx context.Context) error {
	for overruled := false; e.arbiter >= 0; e.askNext() {
		if err := e.listen(ctx, func() bool { return e.ballots[e.arbiter].state != asked }); err != nil {
			return err
		}
		switch e.ballots[e.arbiter].state {
		case granted:
			e.askAll(e.take, unasked)
			return e.listen(ctx, e.certain)
		case taken:
			if overruled {
				return nil // it is not one stray copy
			}
			overruled, e.eager = true, false
			if err := e.inspect(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// askNext asks the next node for the lock, unless there is none or it is no use.
func (e *election) askNext() {
	e.arbiter = -1
	if e.hopeless() {
		return
	}
	next := func(i int) bool { return e.ballots[i].state == unasked }
	if at := slices.IndexFunc(e.order, next); at >= 0 {
		e.arbiter = e.order[at]
		e.round = e.newRound(e, 1)
		e.take(e.arbiter)
		e.round.allAsked()
	}
}

// inspect looks whether whoever has the lock at the arbiter has a quorum. If not,
// it may be about to get one: only if it still has not after a node time-out, the
// free nodes can be asked.
func (e *election) inspect(ctx context.Context) error {
	e.askAll(e.look, unasked)
	if err := e.listen(ctx, e.certain); err != nil || e.hopeless() {
		return err
	}
	for pause := e.patience/64 + 1; pause < e.patience; pause *= 2 {
		if !pauseFor(ctx, between(pause, 2*pause)) {
			return ctx.Err()
		}
		e.askAll(e.look, asked, taken, free)
		known := func() bool { return e.certain() && e.ballots[e.arbiter].state != asked }
		if err := e.listen(ctx, known); err != nil || e.hopeless() {
			return err
		}
	}
	e.reopen()
	return nil
}

// reopen lets the free nodes be asked, and after them those that have not said
// whether they are.
func (e *election) reopen() {
	unfree := func(i int) int {
		if e.ballots[i].state == free {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(e.order, func(a, b int) int { return unfree(a) - unfree(b) })
	for i := range e.ballots {
		if s := e.ballots[i].state; s == asked || s == free {
			e.ballots[i] = ballot{}
		}
	}
}

// askAll puts a question to the nodes in these states, together.
func (e *election) askAll(question func(node int), in ...ballotState) {
	e.round = e.newRound(e, e.ballots.count(in...))
	for i := range e.ballots {
		if slices.Contains(in, e.ballots[i].state) {
			question(i)
		}
	}
	e.round.allAsked()
}

// take asks a node for the lock: by a bid, if it is probably free, and the node is
// known to run the script that gives it back.
func (e *election) take(i int) {
	s := &e.sites[i]
	s.taking()
	e.ballots[i] = ballot{state: asked}
	if e.eager && len(e.fence) == 0 && s.scripted.Load() {
		if e.bidding == nil {
			e.bidding = e.bid(e.ttl)
		}
		e.round.ask(i, e.bidding)
		return
	}
	if e.taking == nil {
		e.taking = e.copies.take(e.ttl, e.fence)
	}
	e.round.ask(i, e.taking)
}

func (e *election) look(i int) {
	e.ballots[i] = ballot{state: asked}
	if e.looking == nil {
		e.looking = e.copies.look()
	}
	e.round.ask(i, e.looking)
}

// count implements [tally].
func (e *election) count(a answer) { e.ballots[a.node] = newBallot(a) }

// listen takes answers in until it is enough.
func (e *election) listen(ctx context.Context, enough func() bool) error {
	return e.round.listen(ctx, enough)
}

// hopeless reports whether the nodes that may still agree are too few.
func (e *election) hopeless() bool {
	return e.ballots.count(unasked, asked, free, granted) < e.majority()
}

// certain reports whether further answers would not change the outcome.
func (e *election) certain() bool {
	spare := len(e.nodes) - e.majority()
	return e.ballots.count(granted) >= e.majority() || e.ballots.count(free) >= e.majority() ||
		e.ballots.count(taken) > spare || e.ballots.count(failed) > spare || e.ballots.count(asked) == 0
}

// verdict tells why the election was not won: the lock is held, if a quorum could
// be had but for its holders.
func (e *election) verdict() (any, error) {
	if e.ballots.count(failed) > len(e.nodes)-e.majority() {
		return nil, e.round.noQuorum()
	}
	token, ttl := e.ballots.holder(e.majority())
	return []any{token, ttl.Milliseconds()}, nil
}

// raiseFence sees to it that a quorum counts on from the fencing token that is
// handed out: whoever is next gets votes from at least one of these nodes.
// Without it the largest of a quorum's counters may be smaller than that of the
// quorum before.
func (e *election) raiseFence(ctx context.Context) error {
	if len(e.fence) == 0 {
		return nil
	}
	top := e.ballots.topFence()
	raise := &raising{}
	r, question := e.newRound(raise, len(e.sites)), e.raise(top)
	for i, b := range e.ballots {
		if b.fence == top {
			r.skip(answer{node: i})
		} else if b.state != failed {
			r.ask(i, question)
		}
	}
	r.allAsked()
	enough := func() bool { return raise.counting >= e.majority() }
	if err := r.listen(ctx, enough); err != nil {
		return err
	}
	if !enough() {
		return r.noQuorum()
	}
	return nil
}

// raising counts the nodes that count on from a fencing token.
type raising struct{ counting int }

// count implements [tally].
func (r *raising) count(a answer) {
	if a.err == nil {
		r.counting++
	}
}
