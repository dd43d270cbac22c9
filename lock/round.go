package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// round is a question that is put to some nodes, each of which answers once, if
// only by its time-out. Answers are counted by whoever reads them from the wire,
// until whoever asked has heard enough; those that come later are only noted at
// their sites. So a round takes one timer, and wakes the one who asked once.
type round struct {
	*redlockAttempt
	counter counter
	ends    time.Time  // who has not answered by then is silent
	calls   []nodeCall // of those that were asked; with room for all, as they stay where they are
	running bool       // it is one of the tasks, until all have answered

	mu          sync.Mutex
	timer       *time.Timer
	outstanding int           // answers still to come
	enough      func() bool   // nil = nobody listens yet
	decided     chan struct{} // closed once it was enough
	done        bool          // it was
}

// counter is what the answers to a round are counted for.
type counter interface {
	// count takes an answer in. Calls do not overlap, and none comes once it was
	// enough.
	count(nodeReply)
}

// nodeReply is what one node had to say.
type nodeReply struct {
	node  int
	reply any
	err   error // a [*HeldError] if somebody else holds the lock there
}

// newRound begins a round: ask so many nodes at most, say that they have been
// asked, and listen.
func (c *redlockAttempt) newRound(t counter, room int) *round {
	return &round{redlockAttempt: c, counter: t, ends: time.Now().Add(c.nodeTimeout),
		calls: make([]nodeCall, 0, room), running: c.core.tasks.begin()}
}

// ask puts a question to a node, unless everything is over.
func (r *round) ask(i int, what *nodeCommand) {
	if !r.running {
		return
	}
	r.mu.Lock()
	r.outstanding++
	r.mu.Unlock()
	r.calls = append(r.calls, nodeCall{round: r, node: i, nodeCommand: what})
	r.calls[len(r.calls)-1].send()
}

// record counts an answer that is known without asking.
func (r *round) record(a nodeReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counter.count(a)
}

// allSent says that no more nodes will be asked. Time runs out for those that were.
func (r *round) allSent() {
	if !r.running {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.nodeTimeout, r.timeUp)
	r.releaseTimer()
}

// releaseTimer ends what the round costs if all nodes have answered that will ever be
// asked. Called with r.mu held.
func (r *round) releaseTimer() {
	if r.outstanding == 0 && r.timer != nil {
		r.timer.Stop()
		r.core.tasks.done()
	}
}

// timeUp has those that have not answered counted as silent.
func (r *round) timeUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		if q := &r.calls[i]; !q.answered {
			q.timeOut()
		}
	}
}

// await waits until it is enough, which it is at the latest when all nodes have
// answered, or until ctx ends. It may be called again, with the same question.
func (r *round) await(ctx context.Context, enough func() bool) error {
	select {
	case <-r.decision(enough):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.core.alive.Done():
		return ErrClosed
	}
}

// decision returns what is closed once it is enough.
func (r *round) decision(enough func() bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.enough, r.decided = enough, make(chan struct{})
		r.checkDone()
	}
	return r.decided
}

// checkDone looks whether it is enough. Called with r.mu held.
func (r *round) checkDone() {
	if r.running && !r.done && r.enough != nil && (r.outstanding == 0 || r.enough()) {
		r.done = true
		close(r.decided)
	}
}

// accept takes in what a node said, or that it said nothing. It returns false if
// it had been given up. Called with r.mu held; call rest afterwards if it is true.
func (r *round) accept(q *nodeCall, reply any, err error) bool {
	if q.answered {
		return false
	}
	q.answered = true
	n := r.nodes[q.node]
	n.noteReply(err)
	if err == nil && q.script != nil && !n.scripted.Load() {
		n.scripted.Store(true)
	}
	if reply == okReply {
		reply = int64(0) // a plain command's way to say what a script says so
	}
	err = q.nodeCommand.onReply(r.redlockAttempt, q.state(), reply, r.wrapErr(err))
	r.outstanding--
	if !r.done {
		r.counter.count(nodeReply{q.node, reply, err})
		r.checkDone()
	}
	return true
}

// wrapErr says what an error amounts to.
func (r *round) wrapErr(err error) error {
	if err == nil {
		return nil
	}
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", r.nodeTimeout, err)
	}
	return err
}

// noQuorumError tells why a question was not decided.
func (r *round) noQuorumError() error {
	return &NoQuorumError{Key: r.key, Needed: r.majority(), Votes: r.votes()}
}
