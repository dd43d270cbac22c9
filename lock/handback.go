package lock

import (
	"context"
	"sync"
	"time"
)

// handback is the release of copies, which goes on behind whoever asked for it.
type handback struct {
	*round
	channel string // where it is announced; empty = nowhere
	until   time.Time

	counting sync.Mutex // Unlock and Close may both want to know
	released int
	gone     int // copies that are known not to stand
}

// maxUndoPause is the time between two tries to release a copy, at last.
const maxUndoPause = 250 * time.Millisecond

// start sends the releases, to all nodes where a copy may stand.
func (b *handback) start() {
	for i, s := range b.sites {
		s.shut()
		if !s.suspect() {
			b.gone++
			continue
		}
		b.open++
		ctx, cancel := context.WithTimeout(b.transport.alive, b.patience)
		first := b.send(ctx, s)
		b.transport.tasks.spawn(func() {
			reply, err := b.hear(ctx, i, first)
			cancel()
			b.answers <- answer{i, reply, err}
			b.seeThrough(s, first)
		})
	}
}

func (b *handback) send(ctx context.Context, s *site) *call {
	return mutexRelease.send(ctx, s.node, []string{b.key}, b.token, b.channel)
}

// seeThrough repeats the release of one copy until it is answered, or the copy
// has expired or turns out never to have been. If the answer to an earlier request
// is missing, the release must be answered twice: after a broken connection it may
// have overtaken that request, which still sat in the server's buffers.
func (b *handback) seeThrough(s *site, request *call) {
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
		request = b.send(ctx, s)
	}
}

// settle implements [pending]: what has to be sent again is sent without waiting.
func (b *handback) settle(context.Context) error { return nil }

// wait implements [pending].
func (b *handback) wait(ctx context.Context) (any, error) {
	b.counting.Lock()
	defer b.counting.Unlock()
	for {
		switch {
		case b.released >= b.majority():
			return int64(1), nil
		case len(b.nodes)-b.gone < b.majority():
			return nil, nil
		case b.open == 0:
			return nil, b.noQuorum()
		}
		a, err := b.next(ctx)
		switch {
		case err != nil:
			return nil, err
		case a.err == nil && a.reply != nil:
			b.released++
		case a.err == nil:
			b.gone++
		}
	}
}
