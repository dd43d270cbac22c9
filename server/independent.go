package server

import (
	"context"
	"errors"
)

// Independent are servers that know nothing of each other, as the nodes of a
// Redlock do, with their power switches. All are children: see [Child]. They
// keep what they have on disk, so that one that is switched off and on again
// has not forgotten.
type Independent struct {
	children
}

// StartIndependent starts n servers. ctx bounds the start. What they have
// answered they have written: with an fsync every second, the default, a write may
// wait for the one before, and a server that is killed then forgets what it said.
func StartIndependent(ctx context.Context, n int) (*Independent, error) {
	i := &Independent{}
	for range n {
		if _, err := i.add(ctx, ChildOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "no"}}); err != nil {
			return nil, errors.Join(err, i.Stop())
		}
	}
	return i, nil
}

// Stop ends them all.
func (i *Independent) Stop() error { return i.stop() }

// Nodes returns the servers.
func (i *Independent) Nodes() []*Child { return i.children }

// Down ends a server, counted from 1, as a crash would.
func (i *Independent) Down(node int) error { return i.children[node-1].Kill() }

// Up brings a server that is down back, with what it had or with nothing. One
// that is not down is left as it is.
func (i *Independent) Up(ctx context.Context, node int, empty bool) error {
	c := i.children[node-1]
	if c.PID() != 0 {
		return nil
	}
	if empty {
		if err := c.Erase(); err != nil {
			return err
		}
	}
	return c.Restart(ctx)
}

// Freeze has a node, counted from 1, stand still until Continue.
func (i *Independent) Freeze(node int) error { return i.children[node-1].Freeze() }

// Continue lets a node run again.
func (i *Independent) Continue(node int) error { return i.children[node-1].Continue() }

// IndependentForTest starts servers that end with the test. Where redis-server
// is missing it does what [ForTest] does.
func IndependentForTest(t TB, n int) *Independent {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Independent, error) { return StartIndependent(ctx, n) }, (*Independent).Stop)
}
