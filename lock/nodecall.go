package lock

import (
	"context"

	"locktop/lock/internal/transport"
)

// nodeCall is the command of a round to one node. The goroutine that reads a plain
// reply from the connection handles it; an error takes a goroutine of its own.
type nodeCall struct {
	call
	round   *round
	node    int
	command *nodeCommand

	// Guarded by round.mu.
	replied bool // also by a time-out
	late    bool // it timed out, and counts as a task until the reply is handled
}

func (c *nodeCall) send() {
	c.transport, c.script, c.fallback = c.route(), c.command.script, c.command.fallback
	c.first.Args, c.first.Callback = c.command.argv, c
	c.cmd, c.reply = &c.first, &c.first // first: the reply may come before Send returns
	if refused, ok := c.transport.Send(c.core().alive, &c.first).(failedReply); ok {
		c.reply = refused
		c.Done(refused)
	}
}

func (c *nodeCall) core() *core { return c.round.attempt.redlock.core }

func (c *nodeCall) state() *nodeState { return &c.round.attempt.states[c.node] }

// route returns the transport to the node: for a release the node itself, since
// the state of a node refuses commands after closeAcquires.
func (c *nodeCall) route() transport.Transport {
	if c.command.afterReply != nil {
		return c.state().node
	}
	return c.state()
}

// Done implements [transport.Callback].
func (c *nodeCall) Done(err error) {
	if err != nil {
		c.core().tasks.add()
		go c.followUp()
		return
	}
	r := c.round
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accept(c, c.first.Value, nil) {
		defer r.endIfReplied()
	}
	if c.command.afterReply != nil && c.state().mayHold() {
		c.core().tasks.add()
		go c.followUp()
	}
}

// timeOut ends the wait for the reply. round.mu is held.
func (c *nodeCall) timeOut() {
	if c.command.afterReply != nil {
		c.late = true
		c.core().tasks.add()
	}
	c.round.accept(c, nil, context.DeadlineExceeded)
	c.round.endIfReplied()
}

// followUp handles an error reply, and calls afterReply.
func (c *nodeCall) followUp() {
	tasks := &c.core().tasks
	defer tasks.done()
	ctx, cancel := context.WithDeadline(c.core().alive, c.round.ends)
	reply, err := c.call.wait(ctx)
	cancel()
	c.finish(reply, err)
	if c.command.afterReply == nil {
		return
	}
	c.command.afterReply(c)
	if c.late {
		tasks.done()
	}
}

// finish takes the reply, unless the call timed out.
func (c *nodeCall) finish(reply any, err error) {
	c.round.mu.Lock()
	defer c.round.mu.Unlock()
	if c.round.accept(c, reply, err) {
		c.round.endIfReplied()
	}
}
