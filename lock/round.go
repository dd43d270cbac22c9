package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// round sends commands to the nodes of a quorum, at most one to each. Every node
// replies exactly once: a node that has not answered after nodeTimeout counts as
// replied with an error. The goroutine that reads a reply from the connection
// counts it, until the caller of await has enough replies; later replies only
// update the node's state. So a round needs one timer and wakes its caller once.
type round struct {
	attempt *redlockAttempt
	counter counter    // nil = the replies decide nothing
	ends    time.Time  // the nodes time out at this moment
	calls   []nodeCall // never reallocated: pointers to its elements are in use
	running bool       // it counts as a task until all nodes have replied

	mu          sync.Mutex
	timer       *time.Timer
	outstanding int           // replies to come
	enough      func() bool   // nil before await
	decided     chan struct{} // closed once enough returns true
	done        bool          // decided is closed
}

// counter counts the replies of a round.
type counter interface {
	// count takes a reply. Calls do not overlap. None follows once the caller of
	// await has enough replies.
	count(nodeReply)
}

// nodeReply is the reply of one node.
type nodeReply struct {
	node  int
	reply any
	err   error // a [*HeldError] if another token holds the lock on the node
}

// newRound returns a round for at most size nodes. Call send for each node, then
// allSent, then await.
func (a *redlockAttempt) newRound(c counter, size int) *round {
	return &round{attempt: a, counter: c, ends: time.Now().Add(a.redlock.nodeTimeout),
		calls: make([]nodeCall, 0, size), running: a.redlock.core.tasks.begin()}
}

// send sends a command to node i, unless the client is closed.
func (r *round) send(i int, cmd *nodeCommand) {
	if !r.running {
		return
	}
	r.mu.Lock()
	r.outstanding++
	r.mu.Unlock()
	r.calls = append(r.calls, nodeCall{round: r, node: i, command: cmd})
	r.calls[len(r.calls)-1].send()
}

// record counts a reply that is known without a command.
func (r *round) record(reply nodeReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counter != nil {
		r.counter.count(reply)
	}
}

// allSent ends the calls of send and starts the time-out of the nodes.
func (r *round) allSent() {
	if !r.running {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.attempt.redlock.nodeTimeout, r.timeOut)
	r.endIfReplied()
}

// endIfReplied stops the timer and ends the task if all nodes have replied. r.mu is
// held.
func (r *round) endIfReplied() {
	if r.outstanding == 0 && r.timer != nil {
		r.timer.Stop()
		r.attempt.redlock.core.tasks.done()
	}
}

// timeOut ends the wait for the nodes that have not answered.
func (r *round) timeOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		if c := &r.calls[i]; !c.replied {
			c.timeOut()
		}
	}
}

// await waits until enough returns true, all nodes have replied, or ctx ends. Later
// calls wait for the condition of the first.
func (r *round) await(ctx context.Context, enough func() bool) error {
	select {
	case <-r.decision(enough):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.attempt.redlock.core.alive.Done():
		return ErrClosed
	}
}

// decision returns a channel that is closed once enough returns true.
func (r *round) decision(enough func() bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.enough, r.decided = enough, make(chan struct{})
		r.checkEnough()
	}
	return r.decided
}

// checkEnough closes decided if there are enough replies. r.mu is held.
func (r *round) checkEnough() {
	if r.running && !r.done && r.enough != nil && (r.outstanding == 0 || r.enough()) {
		r.done = true
		close(r.decided)
	}
}

// accept takes the reply to a call, or its error. It returns false if the call
// timed out before. r.mu is held; call endIfReplied after accept returned true.
func (r *round) accept(c *nodeCall, reply any, err error) bool {
	if c.replied {
		return false
	}
	c.replied = true
	n := r.attempt.redlock.set.nodes[c.node]
	n.noteReply(err)
	if err == nil && c.command.script != nil && !n.scripted.Load() {
		n.scripted.Store(true)
	}
	err = c.command.onReply(c.state(), reply, r.wrapErr(err))
	r.outstanding--
	if !r.done {
		if r.counter != nil {
			r.counter.count(nodeReply{c.node, reply, err})
		}
		r.checkEnough()
	}
	return true
}

// wrapErr adds the sentinel that an error matches, or the time-out.
func (r *round) wrapErr(err error) error {
	if err == nil {
		return nil
	}
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", r.attempt.redlock.nodeTimeout, err)
	}
	return err
}

// noQuorumError returns the error of a round that too few nodes answered.
func (r *round) noQuorumError() error {
	k := r.attempt.redlock
	return &NoQuorumError{Key: k.key, Needed: k.set.majority(), Votes: r.attempt.votes()}
}
