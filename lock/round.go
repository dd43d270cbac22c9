package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// round is a question that is put to some nodes, each of which answers once, if
// only by its time-out. Whoever asked may stop listening at any moment.
type round struct {
	*copies
	open    int         // answers still to come
	answers chan answer // has room for all
}

// answer is what one node had to say.
type answer struct {
	node  int
	reply any
	err   error // a [*HeldError] if somebody else holds the lock there
}

func (c *copies) newRound() *round {
	return &round{copies: c, answers: make(chan answer, len(c.sites))}
}

// next returns the next answer. It must not be called when none is to come.
func (r *round) next(ctx context.Context) (answer, error) {
	select {
	case a := <-r.answers:
		r.open--
		return a, nil
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case <-r.transport.alive.Done():
		return answer{}, ErrClosed
	}
}

// take asks a node for the lock, with its fencing token if it has one.
func (r *round) take(i int, ttl time.Duration, fence []string) {
	s := r.sites[i]
	s.taking()
	r.ask(i, func(ctx context.Context) *call {
		return mutexAcquire.send(ctx, s, append([]string{r.key}, fence...), r.token, ttl.Milliseconds())
	}, func(reply any, err error) error { return s.took(r.key, reply, err, r.minUptime) })
}

// keep asks a node to prolong the copy.
func (r *round) keep(i int, ttl time.Duration) {
	s := r.sites[i]
	r.ask(i, func(ctx context.Context) *call {
		return mutexExtend.send(ctx, s, []string{r.key}, r.token, ttl.Milliseconds())
	}, s.kept)
}

// look asks a node who holds the lock there.
func (r *round) look(i int) {
	s := r.sites[i]
	r.ask(i, func(ctx context.Context) *call {
		return redlockLook.send(ctx, s, []string{r.key})
	}, func(reply any, err error) error { return s.saw(r.key, reply, err, r.minUptime) })
}

// raise asks a node to count on from a fencing token.
func (r *round) raise(i int, fence int64) {
	r.ask(i, func(ctx context.Context) *call {
		return redlockRaise.send(ctx, r.sites[i], r.copies.fence, fence)
	}, func(_ any, err error) error { return err })
}

// ask puts a request on its way. What note makes of its outcome is the answer.
func (r *round) ask(i int, send func(context.Context) *call, note func(any, error) error) {
	r.open++
	ctx, cancel := context.WithTimeout(r.transport.alive, r.patience)
	request := send(ctx)
	r.transport.tasks.spawn(func() {
		defer cancel()
		reply, err := r.hear(ctx, i, request)
		r.answers <- answer{i, reply, note(reply, err)}
	})
}

// hear waits for the outcome of a request until ctx ends, which is at the node's
// time-out.
func (r *round) hear(ctx context.Context, i int, request *call) (any, error) {
	reply, err := request.wait(ctx)
	r.nodes[i].heard(err)
	if sentinel := sentinelOf(err); sentinel != nil {
		err = fmt.Errorf("%w: %w", sentinel, err)
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", r.patience, err)
	}
	return reply, err
}

// noQuorum tells why a question was not decided.
func (r *round) noQuorum() error {
	return &NoQuorumError{Key: r.key, Needed: r.majority(), Votes: r.votes()}
}
