package inspect

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// retryInterval is the time between two attempts to start or resume a pass.
const retryInterval = 100 * time.Millisecond

// startWithRetry starts a pass, and retries errors that are retryable until giveUp.
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

// resume continues a pass after an error of a step, but not after giveUp. If the server
// process is the same, it returns the same pass. Another process has other cursors, so
// the pass starts again; known locks are then found again.
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
	p.cost.Add(again.cost)
	return p, nil
}

// isTransient reports whether a server is loading, busy, or failing over.
func isTransient(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// errRestarted means that the cursors are invalid and that the reasons of ended holds
// are unknown.
var errRestarted = errors.New("the server was restarted while it was looked at; try again")

// isConnLost reports whether the connection or the server was lost.
func isConnLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errRestarted) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
