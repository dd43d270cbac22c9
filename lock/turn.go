package lock

import (
	"context"
	"slices"
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
	queue  []chan struct{} // closed when it is their turn; guarded by turns.mu
	guests int             // those in the queue, and the one whose turn it is; guarded by turns.mu
	ears   *notifier       // set, with line, by whoever is at the front
	line   *line
}

// take waits until it is the caller's turn.
func (ts *turns) take(ctx context.Context, c *Client, at spot) (*turn, error) {
	t, mine := ts.enter(at)
	if mine == nil {
		return t, nil
	}
	closing, through := c.closing()
	defer through()
	select {
	case <-mine:
		return t, nil
	case <-ctx.Done():
	case <-closing.Done():
	}
	ts.quit(t, mine)
	return nil, endOf(ctx, c)
}

// give lets the next one through.
func (ts *turns) give(t *turn) { ts.quit(t, nil) }

// busy reports whether somebody has a turn there, or waits for one.
func (ts *turns) busy(at spot) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.bySpot[at] != nil
}

// enter joins the queue, with what tells the caller when it is his turn; nil if
// it is now.
func (ts *turns) enter(at spot) (t *turn, mine chan struct{}) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t = ts.bySpot[at]
	if t == nil {
		if ts.bySpot == nil {
			ts.bySpot = make(map[spot]*turn)
		}
		t = &turn{spot: at}
		ts.bySpot[at] = t
	} else {
		mine = make(chan struct{})
		t.queue = append(t.queue, mine)
	}
	t.guests++
	return t, mine
}

// quit leaves the queue. If it is the caller's turn, which may be since he gave
// up, the next one is let through.
func (ts *turns) quit(t *turn, mine chan struct{}) {
	ts.mu.Lock()
	t.guests--
	last := t.guests == 0
	if at := slices.Index(t.queue, mine); at >= 0 {
		t.queue = slices.Delete(t.queue, at, at+1)
	} else if last {
		delete(ts.bySpot, t.spot)
	} else {
		close(t.queue[0])
		t.queue = slices.Delete(t.queue, 0, 1)
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
	t.ears, t.line = n, n.acquire(channel, "")
	me := t.line.join("")
	if t.line.hears() {
		wake(me.news) // for others it listens already: what came before we joined, we have missed
	}
	return t.line, me
}
