package lock

import (
	"strconv"
	"time"
)

// nodeCommand is a command of a round, the same for each node.
type nodeCommand struct {
	script *script // nil = a plain command
	argv   []string
	// onReply updates the state of the node that replied, and returns why the reply
	// does not count as success.
	onReply  func(s *nodeState, reply any, err error) error
	fallback func() (*script, []string) // what to send after a nil reply; nil = nothing
	// afterReply runs on a goroutine of its own after the reply, however late, if
	// the reply is an error or the node may still have a copy. It may be nil.
	afterReply func(*nodeCall)
}

func newScriptCommand(s *script, keys []string, args ...string) *nodeCommand {
	argv := s.argv(make([]string, 0, 3+len(keys)+len(args)), keys)
	return &nodeCommand{script: s, argv: append(argv, args...)}
}

// acquireCmd takes the lock and, with fenceKeys, its fencing token.
func (a *redlockAttempt) acquireCmd(ttl time.Duration, fenceKeys []string) *nodeCommand {
	cmd := newScriptCommand(mutexAcquire, append([]string{a.redlock.key}, fenceKeys...), a.token, millis(ttl), "1")
	cmd.onReply = a.onAcquireReply
	return cmd
}

// trySetCmd takes a lock without a fence. If the lock is free, it costs the node
// half of acquireCmd; if not, it takes another round trip.
func (a *redlockAttempt) trySetCmd(ttl time.Duration) *nodeCommand {
	return &nodeCommand{
		argv:    []string{"set", a.redlock.key, a.token, "nx", "px", millis(ttl)},
		onReply: a.onAcquireReply,
		fallback: func() (*script, []string) {
			cmd := a.acquireCmd(ttl, nil)
			return cmd.script, cmd.argv
		},
	}
}

func (a *redlockAttempt) onAcquireReply(s *nodeState, reply any, err error) error {
	return s.onAcquire(a.redlock.key, reply, err, a.redlock.set.minUptime)
}

// extendCmd sets the TTL of the copy.
func (a *redlockAttempt) extendCmd(ttl time.Duration) *nodeCommand {
	cmd := newScriptCommand(mutexExtend, []string{a.redlock.key}, a.token, millis(ttl))
	cmd.onReply = (*nodeState).onExtend
	return cmd
}

// peekCmd asks for the holder.
func (a *redlockAttempt) peekCmd() *nodeCommand {
	cmd := newScriptCommand(mutexPeek, []string{a.redlock.key})
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
	cmd := newScriptCommand(mutexRelease, []string{a.redlock.key}, a.token, channel)
	cmd.onReply = func(s *nodeState, _ any, err error) error { return s.onRelease(err) }
	return cmd
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
