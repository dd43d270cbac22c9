package classic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

var quorumTake = script("quorum_semaphore_take")

// QuorumSemaphore is a semaphore over several independent servers, as Redlock is a
// mutex. Each server has a zset of the holders, with the time in Unix milliseconds at
// which each got its permit, and grants as many permits as the semaphore has. A client
// asks all servers at the same time, and holds a permit if more than half of them granted one.
// Otherwise it gives back what it got.
//
// The flaw: more clients hold a permit than there are permits. Two majorities have a
// server in common, so one permit is safe. But a server that has two permits is in two
// majorities: of the servers 1, 2 and 3 with two permits each, client A holds 1 and 2,
// client B 2 and 3, and client C 1 and 3. Each server has granted two, and three
// clients are in. This needs no fault, only three clients that ask at the same time. To
// see it, let each of three clients reach two of three servers.
//
// The times come from the clients' clocks, so a client whose clock is ahead removes
// holders whose time is not over, as with [Getset].
//
// The Semaphore of package lock is sound: one server counts. A majority of servers is
// not enough: with p permits, a client would need more than p/(p+1) of the servers.
type QuorumSemaphore struct {
	party
	nodes   []Client
	permits int
}

// NewQuorumSemaphore returns a client's view of the semaphore; key is used unchanged on
// all nodes. The clients of the nodes should obey the deadline of their context, because
// a node has nodeTimeout for its reply.
func NewQuorumSemaphore(nodes []Client, key string, o Options) *QuorumSemaphore {
	return &QuorumSemaphore{newParty(nodes[0], key, o), nodes, cmp.Or(o.Permits, 1)}
}

// nodeTimeout is how long a client waits for the reply of one node.
const nodeTimeout = 50 * time.Millisecond

// TryLock implements [Lock].
func (l *QuorumSemaphore) TryLock(ctx context.Context) (Hold, error) {
	token, now := newToken(), l.hooks.Now()
	granted, err := l.onAll(ctx, func(ctx context.Context, node Client) (int64, error) {
		return quorumTake.Run(ctx, node, []string{l.key}, token, now.UnixMilli(), l.ttl.Milliseconds(), l.permits).Int64()
	})
	giveBack := func(ctx context.Context) (int, error) {
		return l.onAll(ctx, func(ctx context.Context, node Client) (int64, error) {
			return node.ZRem(ctx, l.key, token).Result()
		})
	}
	if granted < l.quorum() {
		if granted > 0 || err != nil {
			_, _ = giveBack(ctx)
		}
		return nil, l.refused(err)
	}
	return &grant{now.Add(l.ttl), func(ctx context.Context) error {
		removed, err := giveBack(ctx)
		if removed < l.quorum() {
			return l.unlocked(0, err)
		}
		return nil
	}}, nil
}

func (l *QuorumSemaphore) quorum() int { return len(l.nodes)/2 + 1 }

// onAll runs a command on all nodes at the same time and adds up the results. It returns an
// error if fewer nodes than a quorum replied.
func (l *QuorumSemaphore) onAll(ctx context.Context, command func(context.Context, Client) (int64, error)) (sum int, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	type reply struct {
		n   int64
		err error
	}
	replies := make(chan reply, len(l.nodes))
	for _, node := range l.nodes {
		go func() {
			n, err := command(ctx, node)
			replies <- reply{n, err}
		}()
	}
	var failed []error
	for range l.nodes {
		r := <-replies
		sum += int(r.n)
		if r.err != nil {
			failed = append(failed, r.err)
		}
	}
	if len(l.nodes)-len(failed) < l.quorum() {
		return sum, fmt.Errorf("%d of %d nodes did not reply: %w", len(failed), len(l.nodes), errors.Join(failed...))
	}
	return sum, nil
}
