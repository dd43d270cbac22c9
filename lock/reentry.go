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
func (c *currentHold) get() *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil && !c.hold.valid() {
		c.hold = nil
	}
	return c.hold
}

func (c *currentHold) set(h *hold) {
	h.order = newGate()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = h
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
