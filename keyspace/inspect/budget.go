package inspect

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Budget limits how much of one server's time all its scanners together use. When the
// server answers more slowly, the budget shrinks.
//
// It is safe for concurrent use. A nil Budget has no limit.
type Budget struct {
	// 0 to 1
	share float64

	mu      sync.Mutex
	nextAt  time.Time     // when the next request is allowed
	baseRTT time.Duration // network round-trip time without load
	backoff float64       // factor by which the budget is reduced; at least 1
	lifted  int           // number of watchers that scan without the limit
}

// DefaultShare is the default share of a server's time that reading may use.
const DefaultShare = 0.1

// Parameters of a Budget.
const (
	maxUnspent  = 200 * time.Millisecond // unused time that is kept; more would allow a burst
	maxBackoff  = 16
	jitterFloor = time.Millisecond // a smaller delay does not reduce the budget
	baseGain    = 256              // 1/baseGain of a longer round trip goes into baseRTT
)

// NewBudget returns a budget that uses a share of the server's time, between 0 and 1.
// It returns nil, which is no limit, for any other value.
func NewBudget(share float64) *Budget {
	if share <= 0 || share >= 1 {
		return nil
	}
	return &Budget{share: share, backoff: 1}
}

// Share returns the share of the server's time that may be used: 1 for a nil Budget.
func (b *Budget) Share() float64 {
	if b == nil {
		return 1
	}
	return b.share
}

// allow reports whether a request is allowed at now.
func (b *Budget) allow(now time.Time) bool {
	return !now.Before(b.next())
}

// next returns when a request is allowed; the zero time if one is, as far as is known.
func (b *Budget) next() time.Time {
	if b == nil {
		return time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nextAt
}

// wait waits until a request is allowed, or returns the error of ctx if ctx ends first.
func (b *Budget) wait(ctx context.Context, now time.Time) error {
	return sleep(ctx, b.next().Sub(now))
}

// charge records that the server worked for busy and that the network added rtt.
func (b *Budget) charge(busy, rtt time.Duration, now time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lifted > 0 {
		return
	}
	switch {
	case b.baseRTT == 0 || rtt < b.baseRTT:
		b.baseRTT = rtt
	case rtt > 2*b.baseRTT && rtt > b.baseRTT+jitterFloor:
		b.backoff = min(2*b.backoff, maxBackoff)
	default:
		b.backoff = max(b.backoff/2, 1)
	}
	b.baseRTT += (rtt - b.baseRTT) / baseGain
	b.nextAt = keyspace.Later(b.nextAt, now.Add(-maxUnspent)).Add(time.Duration(float64(busy) * b.backoff / b.share))
}

// lift adds to the number of watchers that scan without the limit.
func (b *Budget) lift(by int) {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lifted, b.nextAt = b.lifted+by, time.Time{}
	}
}

// sleep waits for d, or returns the error of ctx if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Meter adds up what the commands of scanners cost a server. The messages that make a
// server report changed keys are not included. It is safe for concurrent use; the zero
// value is ready, and a nil one counts nothing.
type Meter struct {
	mu         sync.Mutex
	commands   map[string]int64
	serverTime time.Duration
}

// Usage is what a Meter has counted.
type Usage struct {
	Commands   map[string]int64 // by name, in lower case
	ServerTime time.Duration    // time that the server was busy, on its own clock
}

// Usage returns the sums since the start. They never fall.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Usage{maps.Clone(m.commands), m.serverTime}
}

// sent counts commands.
func (m *Meter) sent(cmds []redis.Cmder) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commands == nil {
		m.commands = make(map[string]int64)
	}
	for _, c := range cmds {
		m.commands[c.Name()]++
	}
}

// busy adds time of the server.
func (m *Meter) busy(d time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serverTime += d
}
