package inspect

import (
	"context"
	"sync"

	"locktop/keyspace"
)

// eventsKept is the maximum number of events between two snapshots.
const eventsKept = 20_000

// BackgroundWatcher runs a watcher in a goroutine, so that no event is missed however
// rarely snapshots are taken. It may be used by several goroutines; each event is in
// one snapshot only.
type BackgroundWatcher struct {
	watcher *Watcher
	sem     chan struct{} // capacity 1; full while the watcher is in use
	ready   chan struct{} // closed after the first cycle
	stop    context.CancelFunc
	done    sync.WaitGroup
	err     error // of the last cycle
}

// StartWatcher starts a watcher in the background, which owns it from then on. The
// result must be closed.
func StartWatcher(w *Watcher) *BackgroundWatcher {
	ctx, stop := context.WithCancel(context.Background())
	b := &BackgroundWatcher{watcher: w, sem: make(chan struct{}, 1), ready: make(chan struct{}), stop: stop}
	b.done.Go(func() { b.run(ctx) })
	return b
}

// Close stops the watcher and returns when its goroutines have ended.
func (b *BackgroundWatcher) Close() {
	b.stop()
	b.done.Wait()
	b.watcher.Close()
}

// Snapshot returns the known locks with the events since the last snapshot. It waits
// for the first cycle and for a cycle in progress. If the last cycle failed, its error
// is returned; events and notices are kept for the next snapshot.
func (b *BackgroundWatcher) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	select {
	case b.sem <- struct{}{}:
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	defer func() { <-b.sem }()
	if b.err != nil {
		return keyspace.Snapshot{}, b.err
	}
	return b.watcher.takeSnapshot(), nil
}

// run runs cycles until ctx ends.
func (b *BackgroundWatcher) run(ctx context.Context) {
	w := b.watcher
	for first := true; ; first = false {
		b.sem <- struct{}{}
		b.err = w.cycle(ctx, false)
		w.unreported.events = w.unreported.events[max(0, len(w.unreported.events)-eventsKept):]
		<-b.sem
		if first {
			close(b.ready)
		}
		if w.wait(ctx) != nil {
			return
		}
	}
}
