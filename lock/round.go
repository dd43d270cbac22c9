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
	*copies
	tally   tally
	ends    time.Time // who has not answered by then is silent
	queries []query   // of those that were asked; with room for all, as they stay where they are
	running bool      // it is one of the tasks, until all have answered

	mu      sync.Mutex
	clock   *time.Timer
	open    int           // answers still to come
	enough  func() bool   // nil = nobody listens yet
	decided chan struct{} // closed once it was enough
	over    bool          // it was
}

// tally is what the answers to a round are counted for.
type tally interface {
	// count takes an answer in. Calls do not overlap, and none comes once it was
	// enough.
	count(answer)
}

// answer is what one node had to say.
type answer struct {
	node  int
	reply any
	err   error // a [*HeldError] if somebody else holds the lock there
}

// newRound begins a round: ask so many nodes at most, say that they have been
// asked, and listen.
func (c *copies) newRound(t tally, room int) *round {
	return &round{copies: c, tally: t, ends: time.Now().Add(c.patience),
		queries: make([]query, 0, room), running: c.transport.tasks.begin()}
}

// ask puts a question to a node, unless everything is over.
func (r *round) ask(i int, what *question) {
	if !r.running {
		return
	}
	r.mu.Lock()
	r.open++
	r.mu.Unlock()
	r.queries = append(r.queries, query{round: r, node: i, question: what})
	r.queries[len(r.queries)-1].send()
}

// skip counts an answer that is known without asking.
func (r *round) skip(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.count(a)
}

// allAsked says that no more nodes will be asked. Time runs out for those that were.
func (r *round) allAsked() {
	if !r.running {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = time.AfterFunc(r.patience, r.timeUp)
	r.rest()
}

// rest ends what the round costs if all nodes have answered that will ever be
// asked. Called with r.mu held.
func (r *round) rest() {
	if r.open == 0 && r.clock != nil {
		r.clock.Stop()
		r.transport.tasks.done()
	}
}

// timeUp has those that have not answered counted as silent.
func (r *round) timeUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.queries {
		if q := &r.queries[i]; !q.answered {
			q.giveUp()
		}
	}
}

// listen waits until it is enough, which it is at the latest when all nodes have
// answered, or until ctx ends. It may be called again, with the same question.
func (r *round) listen(ctx context.Context, enough func() bool) error {
	select {
	case <-r.listener(enough):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.transport.alive.Done():
		return ErrClosed
	}
}

// listener returns what is closed once it is enough.
func (r *round) listener(enough func() bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.enough, r.decided = enough, make(chan struct{})
		r.decide()
	}
	return r.decided
}

// decide looks whether it is enough. Called with r.mu held.
func (r *round) decide() {
	if r.running && !r.over && r.enough != nil && (r.open == 0 || r.enough()) {
		r.over = true
		close(r.decided)
	}
}

// answer takes in what a node said, or that it said nothing. It returns false if
// it had been given up. Called with r.mu held; call rest afterwards if it is true.
func (r *round) answer(q *query, reply any, err error) bool {
	if q.answered {
		return false
	}
	q.answered = true
	n := r.nodes[q.node]
	n.heard(err)
	if err == nil && q.script != nil && !n.scripted.Load() {
		n.scripted.Store(true)
	}
	if reply == okReply {
		reply = int64(0) // a plain command's way to say what a script says so
	}
	err = q.question.note(r.copies, q.site(), reply, r.explain(err))
	r.open--
	if !r.over {
		r.tally.count(answer{q.node, reply, err})
		r.decide()
	}
	return true
}

// explain says what an error amounts to.
func (r *round) explain(err error) error {
	if err == nil {
		return nil
	}
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", r.patience, err)
	}
	return err
}

// noQuorum tells why a question was not decided.
func (r *round) noQuorum() error {
	return &NoQuorumError{Key: r.key, Needed: r.majority(), Votes: r.votes()}
}
