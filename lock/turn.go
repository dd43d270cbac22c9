package lock

import (
	"context"
	"sync"
)

// turns let one goroutine at a time through, at each spot, in order of arrival.
type turns struct {
	mu     sync.Mutex
	bySpot map[spot]*turn
}

// spot is where goroutines of one identity queue: for one key, by the news that
// they wait for.
type spot struct{ key, channel string }

// turn is the queue at one spot.
type turn struct {
	spot   spot
	free   chan struct{} // capacity 1: empty = nobody is at the front
	guests int           // guarded by turns.mu
	ears   *notifier     // set, with line, by whoever is at the front
	line   *line
}

// take waits until it is the caller's turn.
func (ts *turns) take(ctx, closed context.Context, at spot) (*turn, error) {
	t := ts.enter(at)
	select {
	case t.free <- struct{}{}:
		return t, nil
	case <-ctx.Done():
	case <-closed.Done():
	}
	ts.quit(t)
	return nil, endOf(ctx, closed)
}

// give lets the next one through.
func (ts *turns) give(t *turn) {
	<-t.free
	ts.quit(t)
}

// busy reports whether somebody has a turn there, or waits for one.
func (ts *turns) busy(at spot) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.bySpot[at] != nil
}

func (ts *turns) enter(at spot) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.bySpot[at]
	if t == nil {
		if ts.bySpot == nil {
			ts.bySpot = make(map[spot]*turn)
		}
		t = &turn{spot: at, free: make(chan struct{}, 1)}
		ts.bySpot[at] = t
	}
	t.guests++
	return t
}

func (ts *turns) quit(t *turn) {
	ts.mu.Lock()
	t.guests--
	last := t.guests == 0
	if last {
		delete(ts.bySpot, t.spot)
	}
	ts.mu.Unlock()
	if last && t.line != nil {
		t.ears.release(t.line)
	}
}

// rejoin stands in the line that an earlier guest has opened; nil if none has.
// A line is kept until the last guest has gone, so that a busy key is not
// subscribed to over and over.
func (t *turn) rejoin() (*line, *place) {
	if t.line == nil {
		return nil, nil
	}
	return t.line, t.line.join("")
}

// join opens the line of the key and stands in it.
func (t *turn) join(n *notifier, channel string) (*line, *place) {
	t.ears, t.line = n, n.acquire(channel)
	me := t.line.join("")
	if t.line.hears() {
		wake(me.news) // for others it listens already: what came before we joined, we have missed
	}
	return t.line, me
}
