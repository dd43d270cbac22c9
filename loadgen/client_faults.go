package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

// pendingFaults is what is wrong with one client, or is about to be. All methods may be
// called from any goroutine.
type pendingFaults struct {
	notify chan struct{} // a fault may have come; holds one
	none   atomic.Bool   // nothing pends, and nothing is wrong: most clients, most of the time

	mu          sync.Mutex
	pending     []Fault // in the order they came
	clockSkew   time.Duration
	greedyUntil time.Time // until then
}

func newPendingFaults() *pendingFaults {
	p := &pendingFaults{notify: make(chan struct{}, 1)}
	p.none.Store(true)
	return p
}

// add lets a fault wait for its moment.
func (p *pendingFaults) add(f Fault) {
	p.mu.Lock()
	p.pending = append(p.pending, f)
	p.none.Store(false)
	p.mu.Unlock()
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

// take returns the first pending fault that strikes at a moment.
func (p *pendingFaults) take(strikes func(Fault) bool) (Fault, bool) {
	if p.none.Load() {
		return Fault{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.pending {
		if strikes(f) {
			p.pending = append(p.pending[:i:i], p.pending[i+1:]...)
			return f, true
		}
	}
	return Fault{}, false
}

// needsWire reports whether a fault waits for a wire of the client's own.
func (p *pendingFaults) needsWire() bool {
	if p.none.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.pending {
		if f.needsWire() {
			return true
		}
	}
	return false
}

func (p *pendingFaults) setClock(ahead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clockSkew = ahead
}

func (p *pendingFaults) clock() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clockSkew
}

func (p *pendingFaults) setGreedy(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greedyUntil = until
}

func (p *pendingFaults) isGreedy(now time.Time) bool {
	if p.none.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.greedyUntil)
}

// needsWire reports whether a fault breaks the network of one client.
func (f Fault) needsWire() bool {
	switch f.Kind {
	case Crash, Freeze, Partition, DropReplies, Slow:
		return true
	}
	return false
}

// The moments at which a fault strikes a client.

func betweenRounds(f Fault) bool {
	switch f.Kind {
	case DropReplies, Slow, Skew, Greedy:
		return true
	}
	return false
}

func insideHold(f Fault) bool {
	switch f.Kind {
	case Crash, Freeze, Partition, Leak:
		return f.Before == ""
	}
	return false
}
