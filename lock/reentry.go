package lock

import (
	"context"
	"sync"
)

// currentHold is the hold that an owner may enter again.
type currentHold struct {
	mu   sync.Mutex
	hold *hold // nil = none is known
}

// get returns the hold; nil if there is none or it has ended.
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

// gate is a mutex whose lock operation takes a context.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits until the gate is free or ctx ends.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }
