package keyspace

import (
	"context"
	"sync"
)

// eventsKept bounds the events between two pictures.
const eventsKept = 20_000

// Live keeps a follower going by itself, so that nothing is missed however
// seldom somebody wants a picture. It may be used from several goroutines; each
// event, though, is in one picture only.
type Live struct {
	follower *Follower
	turn     chan struct{} // of capacity one: full while somebody uses the follower
	seen     chan struct{} // closed after the first look
	stop     context.CancelFunc
	done     sync.WaitGroup
	err      error // of the last look
}

// GoLive starts to follow. The follower is Live's from now on; it must be
// closed.
func GoLive(f *Follower) *Live {
	ctx, stop := context.WithCancel(context.Background())
	l := &Live{follower: f, turn: make(chan struct{}, 1), seen: make(chan struct{}), stop: stop}
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Close ends the following, and returns when nothing of it runs any more.
func (l *Live) Close() {
	l.stop()
	l.done.Wait()
	l.follower.Close()
}

// Snapshot returns the picture as it is known now, with what has happened since
// the last one. It waits until the server has been looked at for the first time,
// and for a look that is under way. If the last look failed, its error is
// returned; events and notices are kept for the next picture.
func (l *Live) Snapshot(ctx context.Context) (Snapshot, error) {
	select {
	case <-l.seen:
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	defer func() { <-l.turn }()
	if l.err != nil {
		return Snapshot{}, l.err
	}
	return l.follower.picture(), nil
}

// run looks until ctx ends.
func (l *Live) run(ctx context.Context) {
	f := l.follower
	for first := true; ; first = false {
		l.turn <- struct{}{}
		l.err = f.look(ctx, false)
		f.events = f.events[max(0, len(f.events)-eventsKept):]
		<-l.turn
		if first {
			close(l.seen)
		}
		if f.wait(ctx) != nil {
			return
		}
	}
}
