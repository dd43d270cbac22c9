package lock

import (
	"context"
	"sync"
)

// turns let one goroutine at a time through, for each key, in order of arrival.
type turns struct {
	mu    sync.Mutex
	byKey map[string]*turn
}

// turn is the place where goroutines of one identity wait for one key.
type turn struct {
	key    string
	free   chan struct{} // capacity 1: empty = nobody is at the front
	guests int           // guarded by turns.mu
	ears   *notifier     // set, with line, by whoever is at the front
	line   *line
}

// take waits until it is the caller's turn.
func (ts *turns) take(ctx, closed context.Context, key string) (*turn, error) {
	t := ts.enter(key)
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

func (ts *turns) enter(key string) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byKey[key]
	if t == nil {
		if ts.byKey == nil {
			ts.byKey = make(map[string]*turn)
		}
		t = &turn{key: key, free: make(chan struct{}, 1)}
		ts.byKey[key] = t
	}
	t.guests++
	return t
}

func (ts *turns) quit(t *turn) {
	ts.mu.Lock()
	t.guests--
	last := t.guests == 0
	if last {
		delete(ts.byKey, t.key)
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
