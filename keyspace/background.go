package keyspace

import (
	"context"
	"sync"
)

// eventsKept bounds the events between two pictures.
const eventsKept = 20_000

// BackgroundWatcher keeps a watcher going by itself, so that nothing is missed however
// seldom somebody wants a picture. It may be used from several goroutines; each
// event, though, is in one picture only.
type BackgroundWatcher struct {
	watcher *Watcher
	sem     chan struct{} // of capacity one: full while somebody uses the watcher
	ready   chan struct{} // closed after the first look
	stop    context.CancelFunc
	done    sync.WaitGroup
	err     error // of the last look
}

// StartWatcher starts to follow. The watcher is the BackgroundWatcher's from now on; it must be
// closed.
func StartWatcher(w *Watcher) *BackgroundWatcher {
	ctx, stop := context.WithCancel(context.Background())
	b := &BackgroundWatcher{watcher: w, sem: make(chan struct{}, 1), ready: make(chan struct{}), stop: stop}
	b.done.Go(func() { b.run(ctx) })
	return b
}

// Close ends the following, and returns when nothing of it runs any more.
func (b *BackgroundWatcher) Close() {
	b.stop()
	b.done.Wait()
	b.watcher.Close()
}

// Snapshot returns the picture as it is known now, with what has happened since
// the last one. It waits until the server has been looked at for the first time,
// and for a look that is under way. If the last look failed, its error is
// returned; events and notices are kept for the next picture.
func (b *BackgroundWatcher) Snapshot(ctx context.Context) (Snapshot, error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	select {
	case b.sem <- struct{}{}:
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	defer func() { <-b.sem }()
	if b.err != nil {
		return Snapshot{}, b.err
	}
	return b.watcher.takeSnapshot(), nil
}

// run looks until ctx ends.
func (b *BackgroundWatcher) run(ctx context.Context) {
	w := b.watcher
	for first := true; ; first = false {
		b.sem <- struct{}{}
		b.err = w.cycle(ctx, false)
		w.events = w.events[max(0, len(w.events)-eventsKept):]
		<-b.sem
		if first {
			close(b.ready)
		}
		if w.wait(ctx) != nil {
			return
		}
	}
}
