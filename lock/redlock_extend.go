package lock

import (
	"context"
	"errors"
)

// extension is the prolonging of copies. It succeeds if a quorum of those that
// stood still does.
type extension struct {
	*round
	extended int
	lost     int // copies that are known not to stand
}

// count implements [tally].
func (x *extension) count(a nodeReply) {
	switch {
	case a.err == nil:
		x.extended++
	case errors.Is(a.err, errCopyGone) || errors.Is(a.err, errReleasing):
		x.lost++
	}
}

// resendIfNeeded implements [pending]: what has to be sent again is sent without waiting.
func (x *extension) resendIfNeeded(context.Context) error { return nil }

// wait implements [pending]. The lock is lost for certain once too many copies are
// gone; as long as nodes just do not answer, another try may succeed.
func (x *extension) wait(ctx context.Context) (any, error) {
	majority := x.majority()
	kept := func() bool { return x.extended >= majority }
	lost := func() bool { return len(x.nodes)-x.lost < majority }
	err := x.await(ctx, func() bool { return kept() || lost() })
	switch {
	case err != nil:
		return nil, err
	case kept():
		return int64(1), nil
	case lost():
		return int64(0), nil
	}
	return nil, x.noQuorumError()
}
