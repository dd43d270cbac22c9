package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"locktop/lock/internal/transport"
)

// round sends commands to the nodes of a quorum, at most one to each. Every node
// replies exactly once: a node that has not answered after nodeTimeout counts as
// replied with an error. The goroutine that reads a reply from the connection
// counts it, until the caller of await has enough replies; later replies only
// update the node's state. So a round needs one timer and wakes its caller once.
type round struct {
	attempt *redlockAttempt
	counter counter    // nil = the replies decide nothing
	ends    time.Time  // the nodes time out at this moment
	calls   []nodeCall // never reallocated: pointers to its elements are in use
	running bool       // it counts as a task until all nodes have replied

	mu          sync.Mutex
	timer       *time.Timer
	outstanding int           // replies to come
	enough      func() bool   // nil before await
	decided     chan struct{} // closed once enough returns true
	done        bool          // decided is closed
}

// counter counts the replies of a round.
type counter interface {
	// count takes a reply. Calls do not overlap. None follows once the caller of
	// await has enough replies.
	count(nodeReply)
}

// nodeReply is the reply of one node.
type nodeReply struct {
	node  int
	reply any
	err   error // a [*HeldError] if another token holds the lock on the node
}

// newRound returns a round for at most size nodes. Call send for each node, then
// allSent, then await.
func (a *redlockAttempt) newRound(c counter, size int) *round {
	return &round{attempt: a, counter: c, ends: time.Now().Add(a.redlock.nodeTimeout),
		calls: make([]nodeCall, 0, size), running: a.redlock.core.tasks.begin()}
}

// send sends a command to node i, unless the client is closed.
func (r *round) send(i int, cmd *nodeCommand) {
	if !r.running {
		return
	}
	r.mu.Lock()
	r.outstanding++
	r.mu.Unlock()
	r.calls = append(r.calls, nodeCall{round: r, node: i, command: cmd})
	r.calls[len(r.calls)-1].send()
}

// record counts a reply that is known without a command.
func (r *round) record(reply nodeReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counter != nil {
		r.counter.count(reply)
	}
}

// allSent ends the calls of send and starts the time-out of the nodes.
func (r *round) allSent() {
	if !r.running {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.attempt.redlock.nodeTimeout, r.timeOut)
	r.endIfReplied()
}

// endIfReplied stops the timer and ends the task if all nodes have replied. r.mu is
// held.
func (r *round) endIfReplied() {
	if r.outstanding == 0 && r.timer != nil {
		r.timer.Stop()
		r.attempt.redlock.core.tasks.done()
	}
}

// timeOut ends the wait for the nodes that have not answered.
func (r *round) timeOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		if c := &r.calls[i]; !c.replied {
			c.timeOut()
		}
	}
}

// await waits until enough returns true, all nodes have replied, or ctx ends. Later
// calls wait for the condition of the first.
func (r *round) await(ctx context.Context, enough func() bool) error {
	select {
	case <-r.decision(enough):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.attempt.redlock.core.alive.Done():
		return ErrClosed
	}
}

// decision returns a channel that is closed once enough returns true.
func (r *round) decision(enough func() bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.enough, r.decided = enough, make(chan struct{})
		r.checkEnough()
	}
	return r.decided
}

// checkEnough closes decided if there are enough replies. r.mu is held.
func (r *round) checkEnough() {
	if r.running && !r.done && r.enough != nil && (r.outstanding == 0 || r.enough()) {
		r.done = true
		close(r.decided)
	}
}

// accept takes the reply to a call, or its error. It returns false if the call
// timed out before. r.mu is held; call endIfReplied after accept returned true.
func (r *round) accept(c *nodeCall, reply any, err error) bool {
	if c.replied {
		return false
	}
	c.replied = true
	n := r.attempt.redlock.set.nodes[c.node]
	n.noteReply(err)
	if err == nil && c.command.script != nil && !n.scripted.Load() {
		n.scripted.Store(true)
	}
	err = c.command.onReply(c.state(), reply, r.wrapErr(err))
	r.outstanding--
	if !r.done {
		if r.counter != nil {
			r.counter.count(nodeReply{c.node, reply, err})
		}
		r.checkEnough()
	}
	return true
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
	return &NoQuorumError{Key: k.key, TookPart: tookPart, Needed: k.set.majority(), Votes: r.attempt.votes()}
}

// nodeCommand is a command of a round, the same for each node.
type nodeCommand struct {
	script *script // nil = a plain command
	argv   []string
	// onReply updates the state of the node that replied, and returns why the reply
	// does not count as success.
	onReply  func(s *nodeState, reply any, err error) error
	fallback fallback
	// afterReply runs on a goroutine of its own after the reply, however late, if
	// the reply is an error or the node may still have a copy. It may be nil.
	afterReply func(*nodeCall)
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

// releaseCmd deletes the copy and publishes that on channel.
func (a *redlockAttempt) releaseCmd(channel string) *nodeCommand {
	cmd := newScriptCommand(mutexScripts.release, []string{a.redlock.key}, a.token, channel)
	cmd.onReply = func(s *nodeState, _ any, err error) error { return s.onRelease(err) }
	return cmd
}

// wakeCmd is releaseCmd for the first node. It wakes one of the processes that have
// registered there.
func (a *redlockAttempt) wakeCmd(channel string) *nodeCommand {
	cmd, k := a.releaseCmd(channel), a.redlock
	if channel == "" {
		return cmd
	}
	cmd.argv = append(cmd.argv, k.core.process)
	cmd.onReply = func(s *nodeState, reply any, err error) error {
		if reply == int64(wokeOwn) {
			k.core.tasks.spawn(func() { k.firstNode.deliver(reply, grant{}) })
		}
		return s.onRelease(err)
	}
	return cmd
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

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
