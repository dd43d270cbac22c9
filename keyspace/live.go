package keyspace

import (
	"context"
	"slices"
	"sync"
)

// eventsKept bounds the events between two pictures.
const eventsKept = 20_000

// Live keeps followers going by itself, so that nothing is missed however
// seldom somebody wants a picture. It may be used from several goroutines; the
// events, though, come only once.
type Live struct {
	all  []*followed
	stop context.CancelFunc
	done sync.WaitGroup
}

// followed is a follower that runs.
type followed struct {
	*Follower
	turn chan struct{} // of capacity one: full while somebody uses the follower
	seen chan struct{} // closed after the first look
	once sync.Once
	err  error // of the last look
}

// GoLive starts to follow. The followers are Live's from now on; it must be
// closed.
func GoLive(followers ...*Follower) *Live {
	ctx, stop := context.WithCancel(context.Background())
	l := &Live{stop: stop}
	for _, f := range followers {
		one := &followed{Follower: f, turn: make(chan struct{}, 1), seen: make(chan struct{})}
		l.all = append(l.all, one)
		l.done.Go(func() { one.run(ctx) })
	}
	return l
}

// Close ends the following, and returns when nothing of it runs any more.
func (l *Live) Close() {
	l.stop()
	l.done.Wait()
	for _, f := range l.all {
		f.Close()
	}
}

// Snapshot returns the picture as it is known now, with what has happened since
// the last one. It waits until the servers have been looked at for the first
// time, and for a look that is under way. If one of them does not answer, its
// error is returned; events and notices are kept for the next picture.
func (l *Live) Snapshot(ctx context.Context) (Snapshot, error) {
	var all []Snapshot
	for i, f := range l.all {
		if err := f.take(ctx); err != nil {
			l.release(i)
			return Snapshot{}, err
		}
		if err := f.err; err != nil {
			l.release(i + 1)
			return Snapshot{}, err
		}
	}
	for _, f := range l.all {
		all = append(all, f.picture())
	}
	l.release(len(l.all))
	return merged(all), nil
}

// release lets the first n followers go on.
func (l *Live) release(n int) {
	for _, f := range l.all[:n] {
		<-f.turn
	}
}

// take waits for the first look, and for the one that is under way.
func (f *followed) take(ctx context.Context) error {
	select {
	case <-f.seen:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run looks until ctx ends.
func (f *followed) run(ctx context.Context) {
	for {
		f.turn <- struct{}{}
		f.err = f.look(ctx, false)
		f.events = f.events[max(0, len(f.events)-eventsKept):]
		f.once.Do(func() { close(f.seen) })
		<-f.turn
		if f.wait(ctx) != nil {
			return
		}
	}
}

// merged is one picture of several servers.
func merged(all []Snapshot) Snapshot {
	if len(all) == 1 {
		return all[0]
	}
	var s Snapshot
	for i, one := range all {
		if i == 0 {
			s = one
			continue
		}
		s.Locks = slices.Concat(s.Locks, one.Locks)
		s.Events = slices.Concat(s.Events, one.Events)
		s.Notices = slices.Concat(s.Notices, one.Notices)
		s.Complete = s.Complete && one.Complete
		s.Cost = Cost{
			Scanned: s.Cost.Scanned + one.Cost.Scanned, Keys: s.Cost.Keys + one.Cost.Keys,
			Commands: s.Cost.Commands + one.Cost.Commands, Took: max(s.Cost.Took, one.Cost.Took),
		}
		s.Follow = s.Follow.and(one.Follow)
		if one.At.After(s.At) {
			s.At = one.At
		}
	}
	slices.SortFunc(s.Locks, func(a, b Lock) int { return a.ID().compare(b.ID()) })
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	return s
}

// and is how two servers are followed together: as well as the worse.
func (f Follow) and(other Follow) Follow {
	worse := map[FollowMode]int{Push: 0, Notify: 1, Polling: 2}
	if worse[other.Mode] > worse[f.Mode] {
		f.Mode = other.Mode
	}
	f.Lag = max(f.Lag, other.Lag)
	for _, b := range other.Blind {
		if !slices.Contains(f.Blind, b) {
			f.Blind = append(slices.Clip(f.Blind), b)
		}
	}
	return f
}
