package lock

import (
	"strconv"
	"time"
)

// nodeCommand is what nodes are asked in a round, the same of each.
type nodeCommand struct {
	script *script  // nil = a plain command
	argv   []string // the command as it travels
	// onReply takes down at the site what came of it, and returns why the answer is
	// not what was hoped for.
	onReply func(c *redlockAttempt, s *nodeState, reply any, err error) error
	// fallback is asked of a node that answered nil; may be nil.
	fallback func() *nodeCommand
	// afterReply sees to what is left to do when an answer has come, however late. It is
	// called on a goroutine of its own, and only if the site is suspect or the answer
	// not a plain one. Nil = nothing.
	afterReply func(*nodeCall)
}

func newScriptCommand(s *script, keys []string, args ...string) *nodeCommand {
	argv := make([]string, 0, 3+len(keys)+len(args))
	argv = append(argv, "evalsha", s.sha, strconv.Itoa(len(keys)))
	argv = append(argv, keys...)
	return &nodeCommand{script: s, argv: append(argv, args...)}
}

// acquireCmd asks for the lock, with its fencing token if it has one.
func (c *redlockAttempt) acquireCmd(ttl time.Duration, fence []string) *nodeCommand {
	q := newScriptCommand(mutexAcquire, append([]string{c.key}, fence...), c.token, millis(ttl), "1")
	q.onReply = onAcquireReply
	return q
}

// trySetCmd asks for the lock without a fence as take does, at half the cost to the node
// if it is free there, and by one more round trip if it is not.
func (c *redlockAttempt) trySetCmd(ttl time.Duration) *nodeCommand {
	return &nodeCommand{
		argv:     []string{"set", c.key, c.token, "nx", "px", millis(ttl)},
		onReply:  onAcquireReply,
		fallback: func() *nodeCommand { return c.acquireCmd(ttl, nil) },
	}
}

func onAcquireReply(c *redlockAttempt, s *nodeState, reply any, err error) error {
	return s.onAcquire(c.key, reply, err, c.minUptime)
}

// extendCmd asks to prolong the copy.
func (c *redlockAttempt) extendCmd(ttl time.Duration) *nodeCommand {
	q := newScriptCommand(mutexExtend, []string{c.key}, c.token, millis(ttl))
	q.onReply = func(_ *redlockAttempt, s *nodeState, reply any, err error) error { return s.onExtend(reply, err) }
	return q
}

// peekCmd asks who holds the lock.
func (c *redlockAttempt) peekCmd() *nodeCommand {
	q := newScriptCommand(mutexPeek, []string{c.key})
	q.onReply = func(c *redlockAttempt, s *nodeState, reply any, err error) error {
		return s.onPeek(c.key, reply, err, c.minUptime)
	}
	return q
}

// raiseFenceCmd asks to count on from a fencing token.
func (c *redlockAttempt) raiseFenceCmd(fence int64) *nodeCommand {
	q := newScriptCommand(redlockRaise, c.fenceKeys, strconv.FormatInt(fence, 10))
	q.onReply = func(_ *redlockAttempt, _ *nodeState, _ any, err error) error { return err }
	return q
}

// releaseCmd gives the copy back.
func (c *redlockAttempt) releaseCmd(channel string) *nodeCommand {
	q := newScriptCommand(mutexRelease, []string{c.key}, c.token, channel)
	q.onReply = func(_ *redlockAttempt, s *nodeState, _ any, err error) error { return s.onRelease(err) }
	return q
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
