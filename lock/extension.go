package lock

import (
	"context"
	"errors"
)

// extension is the prolonging of copies. It succeeds if a quorum of those that
// stood still does.
type extension struct {
	*round
	gone int // copies that are known not to stand
}

// settle implements [pending]: what has to be sent again is sent without waiting.
func (x *extension) settle(context.Context) error { return nil }

// wait implements [pending]. The lock is lost for certain once too many copies are
// gone; as long as nodes just do not answer, another try may succeed.
func (x *extension) wait(ctx context.Context) (any, error) {
	for kept := 0; ; {
		switch {
		case kept >= x.majority():
			return int64(1), nil
		case len(x.nodes)-x.gone < x.majority():
			return int64(0), nil
		case x.open == 0:
			return nil, x.noQuorum()
		}
		a, err := x.next(ctx)
		switch {
		case err != nil:
			return nil, err
		case a.err == nil:
			kept++
		case errors.Is(a.err, errGone) || errors.Is(a.err, errHandedBack):
			x.gone++
		}
	}
}
