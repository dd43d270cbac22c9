package lock

import (
	"context"
	"time"
)

// handback is the release of copies, which goes on behind whoever asked for it.
type handback struct {
	*round
	channel string    // where it is announced; empty = nowhere
	until   time.Time // by then the last copy has expired

	released int
	gone     int // copies that are known not to stand
}

// newHandback sends the releases, to all nodes where a copy may stand.
func newHandback(c *copies, channel string, until time.Time) *handback {
	b := &handback{channel: channel, until: until}
	b.round = c.newRound(b, len(c.sites))
	leave := c.leave(channel)
	leave.after = b.seeThrough
	for i := range c.sites {
		if s := &c.sites[i]; s.shut() {
			b.ask(i, leave)
		} else {
			b.skip(answer{node: i})
		}
	}
	b.allAsked()
	return b
}

// count implements [tally].
func (b *handback) count(a answer) {
	switch {
	case a.err == nil && a.reply != nil:
		b.released++
	case a.err == nil:
		b.gone++
	}
}

// seeThrough repeats the release of one copy until it is answered, or the copy
// has expired or turns out never to have been. If the answer to an earlier request
// is missing, the release must be answered twice: after a broken connection it may
// have overtaken that request, which still sat in the server's buffers.
func (b *handback) seeThrough(q *query) {
	s, request := q.site(), &q.call
	ctx, cancel := context.WithDeadline(b.transport.alive, b.until)
	defer cancel()
	for answers, pause := 0, undoPause; ; pause = min(2*pause, maxUndoPause) {
		_, err := request.wait(ctx)
		s.left(err)
		if err == nil || !transient(err) {
			answers++
		}
		if answers == 2 || !s.suspect() || !pauseFor(ctx, pause) {
			return
		}
		request = mutexRelease.send(ctx, s.node, []string{b.key}, b.token, b.channel)
	}
}

// settle implements [pending]: what has to be sent again is sent without waiting.
func (b *handback) settle(context.Context) error { return nil }

// wait implements [pending].
func (b *handback) wait(ctx context.Context) (any, error) {
	majority := b.majority()
	freed := func() bool { return b.released >= majority }
	lost := func() bool { return len(b.nodes)-b.gone < majority }
	err := b.listen(ctx, func() bool { return freed() || lost() })
	switch {
	case err != nil:
		return nil, err
	case freed():
		return int64(1), nil
	case lost():
		return nil, nil
	}
	return nil, b.noQuorum()
}
