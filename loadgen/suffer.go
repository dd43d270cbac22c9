package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is what faults do to a client.

// suffer lets the faults strike that strike between two rounds, and gives the
// client a wire of its own where one is needed.
func (c *client) suffer(stay context.Context) error {
	if c.wire == nil && c.plight.needsWire() {
		if err := c.isolate(); err != nil {
			return err
		}
	}
	for {
		f, strikes := c.plight.take(betweenRounds)
		if !strikes {
			return nil
		}
		c.fleet.begin(f, c.number)
		switch f.Kind {
		case CutReplies:
			c.sever(f, true)
		case Slow:
			w := c.wire // a crash takes it away from the client
			w.slow(f.Delay, f.Jitter)
			c.fleet.after(f, c.number, func() { w.slow(0, 0) })
		case Skew:
			c.plight.setClock(f.By)
			c.fleet.after(f, c.number, func() { c.plight.setClock(0) })
		case Greedy:
			until := time.Now().Add(maxTime)
			if f.For > 0 {
				until = time.Now().Add(f.For)
			}
			c.plight.setGreedy(until)
			c.fleet.after(f, c.number, func() {})
		}
	}
}

// isolate gives the client connections of its own.
func (c *client) isolate() error {
	w := newWire(&c.fleet.commands)
	root, err := c.fleet.open(w)
	if err != nil {
		return fmt.Errorf("connect a client by itself: %w", err)
	}
	if err := c.identity.close(); err != nil {
		return errors.Join(err, root.close())
	}
	c.wire = w
	c.identity = tenant{root.as(c.persona()), root}
	return nil
}

// tenant is an identity that has its connections for itself.
type tenant struct {
	identity
	root identity
}

func (t tenant) close() error { return errors.Join(t.identity.close(), t.root.close()) }

// strike lets a fault strike the client inside a hold.
func (c *client) strike(halt context.Context, v *visit, f Fault) fate {
	c.fleet.oracle.strike(v, f.Kind)
	c.fleet.begin(f, c.number)
	switch f.Kind {
	case Crash:
		c.crash(f)
		return crashing
	case Forget:
		return forgetting
	case Cut:
		c.sever(f, false)
		return done
	case Freeze:
		c.freeze(halt, f)
		return blindly
	}
	return done
}

// crash cuts the client's wire for ever. What was sent before still arrives.
func (c *client) crash(f Fault) {
	c.absence = f.For
	c.wire.kill()
}

// struckInside reports whether a fault strikes the client inside a hold, now. One
// that breaks the network waits until the client has one of its own.
func (c *client) struckInside(f Fault) bool {
	return insideHold(f) && (c.wire != nil || !f.needsWire())
}

// sever cuts the client off for a while.
func (c *client) sever(f Fault, repliesOnly bool) {
	w := c.wire
	w.cut(f.Node, repliesOnly)
	c.fleet.recorder.mark(c.number, Severed)
	c.fleet.after(f, c.number, func() {
		w.heal(f.Node)
		c.fleet.recorder.unmark(c.number, Severed)
	})
}

// freeze stops the client: it does nothing and hears nothing, and what its timers
// and its renewal would send meanwhile is never sent.
func (c *client) freeze(halt context.Context, f Fault) {
	c.wire.freeze()
	c.fleet.recorder.mark(c.number, Frozen)
	length := f.For
	if length == 0 {
		length = maxTime
	}
	pause(halt, length)
	c.wire.thaw()
	c.fleet.recorder.unmark(c.number, Frozen)
	c.fleet.end(f, c.number)
}

// persona is who the client is to its locks.
func (c *client) persona() persona {
	return persona{
		owner: ownerOf(c.number + 1),
		ahead: c.plight.clock,
		between: func(ctx context.Context, step string) error {
			f, strikes := c.plight.take(func(f Fault) bool { return f.Before == step && c.wire != nil })
			if !strikes {
				return nil
			}
			c.fleet.begin(f, c.number)
			if f.Kind == Freeze {
				c.freeze(ctx, f)
				return nil
			}
			c.crash(f)
			return errDead
		},
	}
}

// die ends the client, whose wire is dead; after a while another one takes its
// place.
func (c *client) die(stay context.Context) {
	f := c.fleet
	f.bury(c.identity)
	f.recorder.die(c.number)
	length := c.absence
	if length == 0 {
		length = maxTime
	}
	pause(stay, length)
	c.wire = nil
	if root, err := f.root(c.number); err == nil { // it was opened when the client was admitted
		c.identity = root.as(c.persona())
	}
	f.disturbances.end(string(Crash), c.number, time.Now())
	f.recorder.revive(c.number)
}
