package lock

import (
	"context"
	"time"
)

// releaseRound releases all copies of an attempt. It goes on in the background
// when its caller stops waiting.
type releaseRound struct {
	round     *round
	channel   string    // the release is published here; empty = nowhere
	expiresBy time.Time // no copy outlives this moment

	released int
	gone     int // nodes without a copy
}

// newReleaseRound sends the release to every node that may have a copy.
func newReleaseRound(a *redlockAttempt, channel string, expiresBy time.Time) *releaseRound {
	r := &releaseRound{channel: channel, expiresBy: expiresBy}
	r.round = a.newRound(r, len(a.states))
	release := a.releaseCmd(channel)
	release.afterReply = r.retryUntilExpired
	for i := range a.states {
		if a.states[i].closeAcquires() {
			r.round.send(i, release)
		} else {
			r.round.record(nodeReply{node: i})
		}
	}
	r.round.allSent()
	return r
}

// count implements [counter].
func (r *releaseRound) count(reply nodeReply) {
	switch {
	case reply.err == nil && reply.reply != nil:
		r.released++
	case reply.err == nil:
		r.gone++
	}
}

// retryUntilExpired sends the release of one copy again until the node answers or
// the copy has expired. If the reply to an earlier acquire is missing, two answers
// are needed: after a broken connection the first release may have overtaken that
// acquire, which was still in a buffer of the server.
func (r *releaseRound) retryUntilExpired(c *nodeCall) {
	a, s, request := r.round.attempt, c.state(), &c.call
	core := a.redlock.core
	ctx, cancel := context.WithDeadline(core.alive, r.expiresBy)
	defer cancel()
	for answers, pause := 0, undoPause; ; pause = min(2*pause, maxUndoPause) {
		_, err := request.wait(ctx)
		s.onRelease(err)
		if err == nil || !transient(err) {
			answers++
		}
		if answers == 2 || !s.mayHold() || !sleep(ctx, pause) {
			return
		}
		request = mutexRelease.send(ctx, s.node, []string{a.redlock.key}, a.token, r.channel)
	}
}

// wait implements [future].
func (r *releaseRound) wait(ctx context.Context) (any, error) {
	set := r.round.attempt.redlock.set
	freed := func() bool { return r.released >= set.majority() }
	lost := func() bool { return len(set.nodes)-r.gone < set.majority() }
	err := r.round.await(ctx, func() bool { return freed() || lost() })
	switch {
	case err != nil:
		return nil, err
	case freed():
		return int64(1), nil
	case lost():
		return nil, nil
	}
	return nil, r.round.noQuorumError()
}
