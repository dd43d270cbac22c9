package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

// plight is what is wrong with one client, or is about to be. All methods may be
// called from any goroutine.
type plight struct {
	struck chan struct{} // a fault may have come; holds one
	calm   atomic.Bool   // nothing pends, and nothing is wrong: most clients, most of the time

	mu      sync.Mutex
	pending []Fault // in the order they came
	ahead   time.Duration
	greedy  time.Time // until then
}

func newPlight() *plight {
	p := &plight{struck: make(chan struct{}, 1)}
	p.calm.Store(true)
	return p
}

// add lets a fault wait for its moment.
func (p *plight) add(f Fault) {
	p.mu.Lock()
	p.pending = append(p.pending, f)
	p.calm.Store(false)
	p.mu.Unlock()
	select {
	case p.struck <- struct{}{}:
	default:
	}
}

// take returns the first pending fault that strikes at a moment.
func (p *plight) take(strikes func(Fault) bool) (Fault, bool) {
	if p.calm.Load() {
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
func (p *plight) needsWire() bool {
	if p.calm.Load() {
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

func (p *plight) setClock(ahead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = ahead
}

func (p *plight) clock() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ahead
}

func (p *plight) setGreedy(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greedy = until
}

func (p *plight) isGreedy(now time.Time) bool {
	if p.calm.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.greedy)
}

// needsWire reports whether a fault breaks the network of one client.
func (f Fault) needsWire() bool {
	switch f.Kind {
	case Crash, Freeze, Cut, CutReplies, Slow:
		return true
	}
	return false
}

// The moments at which a fault strikes a client.

func betweenRounds(f Fault) bool {
	switch f.Kind {
	case CutReplies, Slow, Skew, Greedy:
		return true
	}
	return false
}

func insideHold(f Fault) bool {
	switch f.Kind {
	case Crash, Freeze, Cut, Forget:
		return f.Before == ""
	}
	return false
}
