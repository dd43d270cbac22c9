package keyspace

import (
	"context"
	"sync"
	"time"
)

// Budget keeps what is asked of one server within a budget, however many scanners
// ask. When the server gets slow to answer, it asks for less.
//
// It is safe for concurrent use. A nil Budget does not hold anybody up.
type Budget struct {
	share float64

	mu      sync.Mutex
	nextAt  time.Time     // when the budget allows the next request
	baseRTT time.Duration // what the way to the server and back takes when nothing is in it
	backoff float64       // by how much less than the budget is asked for now; at least 1
}

// DefaultShare is the share of a server's time that looking may take, unless
// somebody says otherwise.
const DefaultShare = 0.1

// What makes a budget.
const (
	maxUnspent  = 200 * time.Millisecond // unspent time that counts; more would come as one blow
	maxBackoff  = 16
	jitterFloor = time.Millisecond // a delay below it is nothing to yield to
	baseGain    = 256              // the share of a longer way that is taken for the new normal
)

// NewBudget returns a budget that lets the server spend this share of its time,
// between 0 and 1. Nil, which is no limit, if it is not in between.
func NewBudget(share float64) *Budget {
	if share <= 0 || share >= 1 {
		return nil
	}
	return &Budget{share: share, backoff: 1}
}

// Share is the part of the server's time that may be spent on us: 1 for a nil Budget.
func (b *Budget) Share() float64 {
	if b == nil {
		return 1
	}
	return b.share
}

// allow reports whether the budget allows a request at now.
func (b *Budget) allow(now time.Time) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.nextAt)
}

// wait returns when the budget allows a request, or with ctx's error when that
// ends before.
func (b *Budget) wait(ctx context.Context, now time.Time) error {
	if b == nil {
		return ctx.Err()
	}
	b.mu.Lock()
	pause := b.nextAt.Sub(now)
	b.mu.Unlock()
	return sleep(ctx, pause)
}

// charge books that the server was busy with us for so long, and that it took so
// much longer until its answer was here.
func (b *Budget) charge(busy, rtt time.Duration, now time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.baseRTT == 0 || rtt < b.baseRTT:
		b.baseRTT = rtt
	case rtt > 2*b.baseRTT && rtt > b.baseRTT+jitterFloor:
		b.backoff = min(2*b.backoff, maxBackoff)
	default:
		b.backoff = max(b.backoff/2, 1)
	}
	b.baseRTT += (rtt - b.baseRTT) / baseGain
	if saved := now.Add(-maxUnspent); b.nextAt.Before(saved) {
		b.nextAt = saved
	}
	b.nextAt = b.nextAt.Add(time.Duration(float64(busy) * b.backoff / b.share))
}

// sleep waits for d, or returns ctx's error when that ends before.
func sleep(ctx context.Context, d time.Duration) error {
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
