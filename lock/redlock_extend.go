package lock

import (
	"context"
	"errors"
)

// extension extends the copies of an attempt. It succeeds if a quorum of nodes had
// a copy and extended it.
type extension struct {
	round    *round
	extended int
	gone     int // nodes without a copy
}

// count implements [counter].
func (x *extension) count(reply nodeReply) {
	switch {
	case reply.err == nil:
		x.extended++
	case errors.Is(reply.err, errCopyGone) || errors.Is(reply.err, errReleasing):
		x.gone++
	}
}

// wait implements [future]. The lock is lost once too few nodes have a copy. If
// nodes only do not answer, a later extension may succeed.
func (x *extension) wait(ctx context.Context) (any, error) {
	set := x.round.attempt.redlock.set
	extended := func() bool { return x.extended >= set.majority() }
	lost := func() bool { return len(set.nodes)-x.gone < set.majority() }
	err := x.round.await(ctx, func() bool { return extended() || lost() })
	switch {
	case err != nil:
		return nil, err
	case extended():
		return int64(1), nil
	case lost():
		return int64(0), nil
	}
	return nil, x.round.noQuorumError()
}
