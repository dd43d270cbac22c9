package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// round sends commands to the nodes of a quorum, at most one to each. Every node
// replies exactly once: a node that has not answered after nodeTimeout counts as
// replied with an error. The goroutine that waits for a node updates its state. The caller
// of await counts the replies until it has enough.
type round struct {
	attempt     *redlockAttempt
	count       func(nodeReply) // nil = the replies decide nothing
	replies     chan nodeReply
	outstanding int  // replies to come, or to be counted
	closed      bool // the client is closed, and nothing is sent
}

// nodeReply is the reply of one node.
type nodeReply struct {
	node  int
	reply any
	err   error // a [*HeldError] if another token holds the lock on the node
}

// newRound returns a round for at most size nodes. Call send for each node, then await.
func (a *redlockAttempt) newRound(count func(nodeReply), size int) *round {
	return &round{attempt: a, count: count, replies: make(chan nodeReply, size)}
}

// send sends a command to node i, unless the client is closed.
func (r *round) send(i int, cmd *nodeCommand) {
	core, s := r.attempt.redlock.core, &r.attempt.states[i]
	if r.closed = r.closed || !core.tasks.begin(); r.closed {
		return
	}
	r.outstanding++
	c := &nodeCall{call: call{transport: s, script: cmd.script, fallback: cmd.fallback}, round: r, node: i, command: cmd, ends: time.Now().Add(r.attempt.redlock.nodeTimeout)}
	if cmd.afterReply != nil {
		c.transport = s.node // a release: s refuses commands after closeAcquires
	}
	c.send(core.alive, &c.first, cmd.argv)
	s.node.await(c)
}

// await counts replies until enough returns true, all nodes have replied, or ctx ends.
func (r *round) await(ctx context.Context, enough func() bool) error {
	alive := r.attempt.redlock.core.alive
	for !r.closed && r.outstanding > 0 && !enough() {
		select {
		case reply := <-r.replies:
			r.outstanding--
			r.count(reply)
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.Done():
			return ErrClosed
		}
	}
	if r.closed {
		return ErrClosed
	}
	return nil
}

// wrapErr adds the sentinel that an error matches, or the time-out.
func (r *round) wrapErr(err error) error {
	if err == nil {
		return nil
	}
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", r.attempt.redlock.nodeTimeout, err)
	}
	return err
}

// noQuorumError returns the error of a round in which only so many nodes took part.
func (r *round) noQuorumError(tookPart int) error {
	k := r.attempt.redlock
	return &noQuorumError{TookPart: tookPart, Needed: k.set.majority(), Votes: r.attempt.votes()}
}

// nodeCommand is a command of a round, the same for each node.
type nodeCommand struct {
	script *script // nil = a plain command
	argv   []string
	// onReply updates the state of the node that replied, and returns why the reply
	// does not count as success.
	onReply  func(s *nodeState, reply any, err error) error
	fallback fallback
	// afterReply runs after the reply if that is an error, such as a time-out, or the node may
	// still have a copy. It may be nil.
	afterReply func(*nodeState, *call)
}

func newScriptCommand(s *script, keys []string, args ...string) *nodeCommand {
	argv := s.argv(make([]string, 0, 3+len(keys)+len(args)), keys)
	return &nodeCommand{script: s, argv: append(argv, args...)}
}

// acquireCmd takes the lock and, with fenceKeys, its fencing token. waiter are the
// arguments of waiters_acquire.
func (a *redlockAttempt) acquireCmd(ttl time.Duration, fenceKeys []string, waiter ...any) *nodeCommand {
	cmd := newScriptCommand(mutexScripts.acquire, append([]string{a.redlock.key}, fenceKeys...), a.token, millis(ttl), "1")
	cmd.argv = appendArgs(cmd.argv, waiter)
	cmd.onReply = a.onAcquireReply
	return cmd
}

// trySetCmd takes a lock without a fence, as scriptProtocol.setFirst.
func (a *redlockAttempt) trySetCmd(ttl time.Duration) *nodeCommand {
	return &nodeCommand{
		argv:    []string{"set", a.redlock.key, a.token, "nx", "px", millis(ttl)},
		onReply: a.onAcquireReply,
		fallback: fallback{afterNil, func() (*script, []string) {
			cmd := a.acquireCmd(ttl, nil)
			return cmd.script, cmd.argv
		}},
	}
}

func (a *redlockAttempt) onAcquireReply(s *nodeState, reply any, err error) error {
	return s.onAcquire(a.redlock.key, reply, err, a.redlock.set.minUptime)
}

// extendCmd sets the TTL of the copy.
func (a *redlockAttempt) extendCmd(ttl time.Duration) *nodeCommand {
	if c := a.redlock.core; !c.noIfEqual.Load() {
		argv, otherwise := c.extendIfEqual(a.redlock.key, a.token, ttl)
		return &nodeCommand{argv: argv, fallback: otherwise, onReply: (*nodeState).onExtend}
	}
	cmd := newScriptCommand(mutexScripts.extend, []string{a.redlock.key}, a.token, millis(ttl))
	cmd.onReply = (*nodeState).onExtend
	return cmd
}

// peekCmd asks for the holder.
func (a *redlockAttempt) peekCmd() *nodeCommand {
	cmd := newScriptCommand(mutexScripts.peek, []string{a.redlock.key})
	cmd.onReply = func(s *nodeState, reply any, err error) error {
		return s.onPeek(a.redlock.key, reply, err, a.redlock.set.minUptime)
	}
	return cmd
}

// raiseFenceCmd raises the fence counter to at least fence.
func (a *redlockAttempt) raiseFenceCmd(fence int64) *nodeCommand {
	cmd := newScriptCommand(redlockRaise, a.redlock.fenceKeys, strconv.FormatInt(fence, 10))
	cmd.onReply = func(_ *nodeState, _ any, err error) error { return err }
	return cmd
}

// releaseCmd deletes the copy and publishes that on channel. On the first node, it wakes one of
// the processes that have registered there.
func (a *redlockAttempt) releaseCmd(channel string, first bool) *nodeCommand {
	cmd, k := newScriptCommand(mutexScripts.release, []string{a.redlock.key}, a.token, channel), a.redlock
	if first && channel != "" {
		cmd.argv = append(cmd.argv, k.core.process)
	}
	cmd.onReply = func(s *nodeState, reply any, err error) error {
		if reply == int64(wokeOwn) {
			k.firstNode.deliver(reply, grant{})
		}
		return s.onRelease(err)
	}
	return cmd
}

// nodeCall is the command of a round to one node. It counts as a task.
type nodeCall struct {
	call
	round   *round
	node    int
	command *nodeCommand
	ends    time.Time // the node times out
}

// await has a goroutine take the reply to c. There is one for the replies of each node.
func (n *node) await(c *nodeCall) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, c)
	if len(n.calls) == 1 {
		go n.receive()
	}
}

// ended is a context that has ended: a wait with it does not block.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive takes replies until there are no calls.
func (n *node) receive() {
	for done := 0; ; {
		n.mu.Lock()
		n.calls = slices.Delete(n.calls, 0, done)
		calls := n.calls
		n.mu.Unlock()
		if done = len(calls); done == 0 {
			return
		}
		for i, c := range calls {
			if i == 0 || c.reply.Wait(ended) != nil { // the replies after the first are often there
				c.receive()
			} else {
				c.finish(c.cmd.Value, nil)
			}
		}
	}
}

// receive takes the reply. An error takes a goroutine of its own: the command may have to be sent
// again.
func (c *nodeCall) receive() {
	ctx, cancel := context.WithDeadline(c.round.attempt.redlock.core.alive, c.ends)
	if c.reply.Wait(ctx) == nil {
		c.finish(c.cmd.Value, nil)
		cancel()
		return
	}
	go func() {
		defer cancel()
		c.finish(c.wait(ctx))
	}()
}

// finish takes the reply or the error of the call.
func (c *nodeCall) finish(reply any, failed error) {
	tasks, s := &c.round.attempt.redlock.core.tasks, &c.round.attempt.states[c.node]
	s.node.noteReply(failed)
	if failed == nil && c.command.script != nil && !s.node.scripted.Load() {
		s.node.scripted.Store(true)
	}
	c.round.replies <- nodeReply{c.node, reply, c.command.onReply(s, reply, c.round.wrapErr(failed))}
	if c.command.afterReply == nil || failed == nil && !s.mayHold() {
		tasks.done()
		return
	}
	go func() {
		defer tasks.done()
		c.command.afterReply(s, &c.call)
	}()
}
