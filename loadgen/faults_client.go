package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"locktop/internal/netfault"
	"locktop/loadgen/oracle"
)

// applyFaults applies the pending faults that belong between two rounds. If a fault
// needs it, it first gives the client its own connections.
func (c *client) applyFaults() error {
	if c.network == nil && c.faults.needsOwnConns() {
		if err := c.dedicateConn(); err != nil {
			return err
		}
	}
	for {
		f, found := c.faults.take(func(f Fault) bool { return slices.Contains([]FaultKind{DropReplies, Slow, Skew, Greedy}, f.Kind) })
		if !found {
			return nil
		}
		c.fleet.begin(f, c.number)
		switch f.Kind {
		case DropReplies:
			c.partition(f, (*netfault.Network).PartitionReplies)
		case Slow:
			w := c.network // waitReplacement sets c.network to nil
			w.slow(f.Delay, f.Jitter)
			c.fleet.after(f, c.number, func() { w.slow(0, 0) })
		case Skew:
			c.faults.clockAhead.Store(int64(f.By))
			c.fleet.after(f, c.number, func() { c.faults.clockAhead.Store(0) })
		case Greedy:
			c.faults.greedyUntil.Store(time.Now().Add(cmp.Or(f.For, maxTime)).UnixNano())
			c.fleet.after(f, c.number, func() {})
		}
	}
}

// dedicateConn gives the client its own connections.
func (c *client) dedicateConn() error {
	w := newNetwork(&c.fleet.sessions.commands)
	w.before = func(node int, command string) func() error { return c.beforeCommand(w, node, command) }
	root, err := c.fleet.open(w)
	if err != nil {
		return fmt.Errorf("connect a client by itself: %w", err)
	}
	if c.session != nil {
		if err := c.session.close(); err != nil {
			return errors.Join(err, root.close())
		}
	}
	c.network = w
	c.session = ownConns{root.as(c.identity()), root}
	return nil
}

// ownConns is a session with its own connections.
type ownConns struct {
	session
	root session
}

func (t ownConns) close() error { return errors.Join(t.session.close(), t.root.close()) }

// applyInHold applies a fault inside a hold, and reports whether it ends the work.
func (c *client) applyInHold(r *round, f Fault) (ends bool) {
	r.fault = f
	c.fleet.tell(struck, r)
	c.fleet.begin(f, c.number)
	switch f.Kind {
	case Crash:
		c.crash(c.network, f)
		r.how = crashed
	case Leak:
		r.how = abandoned
	case Partition:
		c.partition(f, (*netfault.Network).Partition)
		return false
	case Freeze:
		c.freeze(c.fleet.ctx, c.network, f)
		r.unaware = true
	}
	return true
}

// crash cuts all connections of the client over w for good. Data that was sent before
// still arrives.
func (c *client) crash(w *network, f Fault) {
	c.replaceAfter = f.For
	w.kill()
}

// partition cuts the client off for the duration of the fault. What was held back arrives then.
func (c *client) partition(f Fault, cut func(*netfault.Network)) {
	w := c.network
	w.each(f.Node, cut)
	over := c.fleet.recorder.trouble(c.number, Partitioned)
	c.fleet.after(f, c.number, func() {
		w.each(f.Node, (*netfault.Network).Heal)
		over()
	})
}

// freeze stops the client, whose network is w, for the duration of the fault. What its
// timers and renewals send meanwhile is dropped. Replies wait until its end.
func (c *client) freeze(halt context.Context, w *network, f Fault) {
	w.freeze()
	over := c.fleet.recorder.trouble(c.number, Frozen)
	pause(halt, cmp.Or(f.For, maxTime))
	w.thaw()
	over()
	c.fleet.end(f, c.number)
}

// identity returns the identity of the client for its session.
func (c *client) identity() clientIdentity {
	return clientIdentity{
		owner:   oracle.ClientLabel(c.number + 1),
		excused: func(since time.Time) bool { return c.fleet.oracle.Excuses(c.number, since, time.Now()) },
		ahead:   func() time.Duration { return time.Duration(c.faults.clockAhead.Load()) },
		between: func(ctx context.Context, step string) error {
			f, found := c.faults.take(func(f Fault) bool { return f.Before == step && c.network != nil })
			if !found {
				return nil
			}
			return c.strikeBetween(ctx, c.network, f)
		},
	}
}

// strikeBetween applies a fault between two commands.
func (c *client) strikeBetween(halt context.Context, w *network, f Fault) error {
	c.fleet.begin(f, c.number)
	if f.Kind == Freeze {
		c.freeze(halt, w, f)
		return nil
	}
	c.crash(w, f)
	return errDead
}

// beforeCommand is the netfault.Before of a client process whose network is w, for a command to a node.
func (c *client) beforeCommand(w *network, node int, command string) func() error {
	f, found := c.faults.take(func(f Fault) bool {
		_, held := c.fleet.oracle.Held()
		return f.strikesBefore(command, w.holding.Load()) && (f.Node == 0 || f.Node == node && !held && !c.fleet.recorder.inside(c.number))
	})
	if !found {
		return nil
	}
	return func() error {
		err := c.strikeBetween(c.fleet.ctx, w, f)
		w.resumed.Store(time.Now().UnixNano())
		return err
	}
}

// waitReplacement removes a crashed client, waits for replaceAfter, and replaces the client.
func (c *client) waitReplacement() {
	f, old := c.fleet, c.session
	f.tasks.Go(func() { _ = old.close() }) // its network does not work
	f.recorder.update(func(*Metrics) { f.recorder.of(c.number).state = Dead })
	pause(c.stay, cmp.Or(c.replaceAfter, maxTime))
	c.network = nil
	c.reconnect()
	f.oracle.TroubleEnded(oracle.Crash, c.number, oracle.Everybody, time.Now())
	f.recorder.clientJoined(c.number)
}

// reconnect gives the client that replaces a crashed one its session.
func (c *client) reconnect() {
	if c.fleet.scenario.Load().Lock.Kind == Exec {
		old := c.session
		c.session = nil // closed
		if err := c.dedicateConn(); err != nil {
			c.session = old
			c.fleet.recorder.setError(err)
		}
		return
	}
	if root, err := c.fleet.baseSession(c.place); err == nil { // admit has opened it
		c.session = root.as(c.identity())
	}
}

// pendingFaults are the pending and the active faults of one client. All methods are
// safe for concurrent use.
type pendingFaults struct {
	notify chan struct{} // capacity 1: a fault may have been added, or the scenario may have changed

	clockAhead  atomic.Int64 // a time.Duration
	greedyUntil atomic.Int64 // a time, in Unix nanoseconds

	mu      sync.Mutex
	pending []Fault // in order of arrival
}

// add adds a pending fault.
func (p *pendingFaults) add(f Fault) {
	p.mu.Lock()
	p.pending = append(p.pending, f)
	p.mu.Unlock()
	p.wake()
}

// wake makes the client look at its faults, and at the scenario.
func (p *pendingFaults) wake() {
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

// take removes and returns the first pending fault for which matches returns true.
func (p *pendingFaults) take(matches func(Fault) bool) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.pending, matches)
	if i < 0 {
		return Fault{}, false
	}
	f := p.pending[i]
	p.pending = slices.Delete(p.pending, i, i+1)
	return f, true
}

// needsOwnConns reports whether a pending fault needs the client to have its own
// connections.
func (p *pendingFaults) needsOwnConns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.pending, Fault.needsOwnConns)
}

// needsOwnConns reports whether a fault breaks the connections of one client.
func (f Fault) needsOwnConns() bool {
	return slices.Contains([]FaultKind{Crash, Freeze, Partition, DropReplies, Slow}, f.Kind)
}

// Waits reports whether a fault waits until its client holds a lock.
func (f Fault) Waits() bool {
	return f.Before == "" && slices.Contains([]FaultKind{Crash, Freeze, Partition, Leak}, f.Kind)
}
