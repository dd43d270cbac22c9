package lock

import (
	"context"
	"sync"
)

// currentHold is the hold that an owner may enter again.
type currentHold struct {
	mu   sync.Mutex
	hold *hold // nil = none, as far as we know
}

// get returns the hold, nil if there is none or it is over.
func (o *currentHold) get() *hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hold != nil && !o.hold.valid() {
		o.hold = nil
	}
	return o.hold
}

func (o *currentHold) set(h *hold) {
	h.order = newGate()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold = h
}

// gate lets one goroutine at a time through.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits to be let through, until ctx ends.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }
