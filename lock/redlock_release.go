package lock

import (
	"context"
	"time"
)

// releaseRound is the release of copies, which goes on behind whoever asked for it.
type releaseRound struct {
	*round
	channel   string    // where it is announced; empty = nowhere
	expiresBy time.Time // by then the last copy has expired

	released int
	gone     int // copies that are known not to stand
}

// newReleaseRound sends the releases, to all nodes where a copy may stand.
func newReleaseRound(c *redlockAttempt, channel string, until time.Time) *releaseRound {
	b := &releaseRound{channel: channel, expiresBy: until}
	b.round = c.newRound(b, len(c.states))
	leave := c.releaseCmd(channel)
	leave.afterReply = b.retryUntilExpired
	for i := range c.states {
		if s := &c.states[i]; s.closeAcquires() {
			b.ask(i, leave)
		} else {
			b.record(nodeReply{node: i})
		}
	}
	b.allSent()
	return b
}

// count implements [tally].
func (b *releaseRound) count(a nodeReply) {
	switch {
	case a.err == nil && a.reply != nil:
		b.released++
	case a.err == nil:
		b.gone++
	}
}

// retryUntilExpired repeats the release of one copy until it is answered, or the copy
// has expired or turns out never to have been. If the answer to an earlier request
// is missing, the release must be answered twice: after a broken connection it may
// have overtaken that request, which still sat in the server's buffers.
func (b *releaseRound) retryUntilExpired(q *nodeCall) {
	s, request := q.state(), &q.call
	ctx, cancel := context.WithDeadline(b.core.alive, b.expiresBy)
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
		request = mutexRelease.send(ctx, s.node, []string{b.key}, b.token, b.channel)
	}
}

// resendIfNeeded implements [pending]: what has to be sent again is sent without waiting.
func (b *releaseRound) resendIfNeeded(context.Context) error { return nil }

// wait implements [pending].
func (b *releaseRound) wait(ctx context.Context) (any, error) {
	majority := b.majority()
	freed := func() bool { return b.released >= majority }
	lost := func() bool { return len(b.nodes)-b.gone < majority }
	err := b.await(ctx, func() bool { return freed() || lost() })
	switch {
	case err != nil:
		return nil, err
	case freed():
		return int64(1), nil
	case lost():
		return nil, nil
	}
	return nil, b.noQuorumError()
}
