package keyspace

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// retryInterval is the time between two attempts to reach a server that is in
// trouble.
const retryInterval = 100 * time.Millisecond

// startWithRetry begins a pass, and waits until giveUp for a server whose trouble is
// of the kind that passes.
func (s *Scanner) startWithRetry(ctx context.Context, giveUp time.Time, retryable func(error) bool) (*scanPass, error) {
	for {
		p, err := s.startPass(ctx)
		if err == nil || !retryable(err) || !time.Now().Before(giveUp) {
			return p, err
		}
		if err := sleep(ctx, retryInterval); err != nil {
			return nil, err
		}
	}
}

// resume goes on after an error at a step, when the trouble is over, but not after
// giveUp. On the same process it goes on where the pass was; another has cursors of
// its own, so there it begins anew. What had been found is then found again.
func (s *Scanner) resume(ctx context.Context, p *scanPass, err error, giveUp time.Time) (*scanPass, error) {
	if !isTransient(err) && !isConnLost(err) || !time.Now().Before(giveUp) {
		return nil, err
	}
	if err := sleep(ctx, retryInterval); err != nil {
		return nil, err
	}
	again, err := s.startWithRetry(ctx, giveUp, func(err error) bool { return isTransient(err) || isConnLost(err) })
	if err != nil {
		return nil, err
	}
	if again.server.RunID == "" || again.server.RunID != p.server.RunID {
		return again, nil
	}
	p.cost.add(again.cost)
	return p, nil
}

// isTransient reports whether a server says that it is loading, busy, or about to
// be replaced.
func isTransient(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// errRestarted says that the cursors of a walk mean nothing any more, and that
// nobody knows how what was there came to its end.
var errRestarted = errors.New("the server was restarted while it was looked at; try again")

// isConnLost reports whether the connection to a server was lost, or the server.
func isConnLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errRestarted) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
