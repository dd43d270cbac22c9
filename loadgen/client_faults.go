package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

// pendingFaults are the pending and the active faults of one client. All methods are
// safe for concurrent use.
type pendingFaults struct {
	notify chan struct{} // capacity 1: a fault may have been added
	none   atomic.Bool   // no fault was ever added, as for most clients

	mu          sync.Mutex
	pending     []Fault // in order of arrival
	clockSkew   time.Duration
	greedyUntil time.Time
}

func newPendingFaults() *pendingFaults {
	p := &pendingFaults{notify: make(chan struct{}, 1)}
	p.none.Store(true)
	return p
}

// add adds a pending fault.
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

// take removes and returns the first pending fault for which strikes returns true.
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

// needsWire reports whether a pending fault needs the client to have its own
// connections.
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

// needsWire reports whether a fault breaks the connections of one client.
func (f Fault) needsWire() bool {
	switch f.Kind {
	case Crash, Freeze, Partition, DropReplies, Slow:
		return true
	}
	return false
}

// Moments at which a fault affects a client.

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
