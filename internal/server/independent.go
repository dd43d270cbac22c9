package server

import (
	"context"
	"errors"
	"slices"
)

// Independent is a group of [Child] servers without connections to each other, like
// the nodes of a Redlock. A node keeps its data on disk across Down and Up.
type Independent struct {
	nodes []*Child
}

// StartIndependent starts n servers with options. ctx limits the start. The servers append every
// command to their file before the reply, without fsync. With the default, an fsync
// every second, a write may wait for the previous fsync, and Kill would lose writes
// that the server has acknowledged.
func StartIndependent(ctx context.Context, n int, o ChildOptions) (*Independent, error) {
	o.Args = append(slices.Clip(o.Args), "--appendonly", "yes", "--appendfsync", "no")
	i := &Independent{}
	for range n {
		c, err := StartChild(ctx, o)
		if err != nil {
			return nil, errors.Join(err, i.Stop())
		}
		i.nodes = append(i.nodes, c)
	}
	return i, nil
}

// Stop kills all servers, which is faster than a shutdown of each, and removes their
// directories.
func (i *Independent) Stop() error {
	var errs []error
	for _, c := range i.nodes {
		errs = append(errs, c.Kill(), c.Stop())
	}
	return errors.Join(errs...)
}

// Nodes returns the servers.
func (i *Independent) Nodes() []*Child { return i.nodes }

// Down ends a server, counted from 1, like a crash.
func (i *Independent) Down(node int) error { return i.nodes[node-1].Kill() }

// Up restarts a server that is down, with its data or empty. It does nothing if the
// server runs.
func (i *Independent) Up(ctx context.Context, node int, empty bool) error {
	c := i.nodes[node-1]
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

// Freeze suspends a server, counted from 1, until Continue.
func (i *Independent) Freeze(node int) error { return i.nodes[node-1].Freeze() }

// Continue resumes a server, counted from 1.
func (i *Independent) Continue(node int) error { return i.nodes[node-1].Continue() }
