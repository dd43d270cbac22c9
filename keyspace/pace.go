package keyspace

import (
	"context"
	"sync"
	"time"
)

// Pace keeps what is asked of one server within a budget, however many scanners
// ask. When the server gets slow to answer, it asks for less.
//
// It is safe for concurrent use. A nil Pace does not hold anybody up.
type Pace struct {
	share float64

	mu    sync.Mutex
	free  time.Time     // when the budget allows the next request
	quiet time.Duration // what the way to the server and back takes when nothing is in it
	slow  float64       // by how much less than the budget is asked for now; at least 1
}

// DefaultBudget is the share of a server's time that looking may take, unless
// somebody says otherwise.
const DefaultBudget = 0.1

// What makes a pace.
const (
	maxSaved  = 200 * time.Millisecond // unspent time that counts; more would come as one blow
	maxSlow   = 16
	restless  = time.Millisecond // a delay below it is nothing to yield to
	quietGain = 256              // the share of a longer way that is taken for the new normal
)

// NewPace returns a pace that lets the server spend this share of its time,
// between 0 and 1. Nil, which is no limit, if it is not in between.
func NewPace(share float64) *Pace {
	if share <= 0 || share >= 1 {
		return nil
	}
	return &Pace{share: share, slow: 1}
}

// Share is the part of the server's time that may be spent on us: 1 for a nil Pace.
func (p *Pace) Share() float64 {
	if p == nil {
		return 1
	}
	return p.share
}

// ready reports whether the budget allows a request at now.
func (p *Pace) ready(now time.Time) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.free)
}

// wait returns when the budget allows a request, or with ctx's error when that
// ends before.
func (p *Pace) wait(ctx context.Context, now time.Time) error {
	if p == nil {
		return ctx.Err()
	}
	p.mu.Lock()
	pause := p.free.Sub(now)
	p.mu.Unlock()
	return pauseFor(ctx, pause)
}

// spend books that the server was busy with us for so long, and that it took so
// much longer until its answer was here.
func (p *Pace) spend(busy, way time.Duration, now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.quiet == 0 || way < p.quiet:
		p.quiet = way
	case way > 2*p.quiet && way > p.quiet+restless:
		p.slow = min(2*p.slow, maxSlow)
	default:
		p.slow = max(p.slow/2, 1)
	}
	p.quiet += (way - p.quiet) / quietGain
	if saved := now.Add(-maxSaved); p.free.Before(saved) {
		p.free = saved
	}
	p.free = p.free.Add(time.Duration(float64(busy) * p.slow / p.share))
}

// pauseFor waits for d, or returns ctx's error when that ends before.
func pauseFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
