package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"locktop/lock/internal/transport"
)

// nodeState is the copy of a [Redlock] on one node. As a transport it refuses
// commands after closeAcquires.
type nodeState struct {
	transport.Transport // the node's
	node                *node

	mu       sync.Mutex
	closed   bool  // closeAcquires was called
	inFlight int   // acquires whose outcome is not known
	held     bool  // the node had the copy when it last answered
	err      error // why it has none, or why the node does not answer
}

var (
	errCopyGone  = errors.New("its copy is gone")
	errReleasing = fmt.Errorf("%w: the lock was given back", ErrClosed)
)

// failedReply is the reply to a command that was not sent.
type failedReply struct{ error }

func (r failedReply) Wait(context.Context) error { return r.error }

// Send implements [transport.Transport]. Scripts that are sent again come through it,
// too.
func (s *nodeState) Send(ctx context.Context, cmd *transport.Command) transport.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return failedReply{errReleasing}
	}
	return s.Transport.Send(ctx, cmd)
}

// closeAcquires makes Send refuse all commands, and returns whether the node may
// have a copy.
func (s *nodeState) closeAcquires() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.held || s.inFlight > 0
}

// probablyHeld reports whether the node had a copy when it last answered, or has not
// answered an acquire yet.
func (s *nodeState) probablyHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0 && s.err != errCopyGone
}

// mayHold reports whether the node may have a copy, or may still create one.
func (s *nodeState) mayHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0
}

// onSend notes that an acquire is about to be sent.
func (s *nodeState) onSend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
}

// onAcquire notes the reply to an acquire. It returns why the node has no vote: a
// node that is not up long enough may have a copy and no vote.
func (s *nodeState) onAcquire(key string, reply any, err error, minUptime time.Duration) error {
	var held *HeldError
	if err == nil {
		held, _, err = parseAcquire(key, reply)
	}
	unknown := outcomeUnknown(err)
	if held != nil {
		err = held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unknown {
		s.inFlight--
	}
	s.held, s.err = err == nil, err
	if err == nil {
		s.err = s.node.checkUptime(minUptime)
	}
	return s.err
}

// onExtend notes the reply to an extension, and returns why the copy was not extended.
func (s *nodeState) onExtend(reply any, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err == nil {
		s.held = reply == int64(1)
	}
	if err == nil && !s.held {
		s.err = errCopyGone
	}
	return s.err
}

// onPeek notes the reply to a peek, and returns why the node would not grant the lock.
func (s *nodeState) onPeek(key string, reply any, err error, minUptime time.Duration) error {
	if err == nil {
		holder, _, invalid := parseAcquire(key, reply)
		switch {
		case invalid != nil:
			err = invalid
		case holder != nil && holder.Token != "":
			err = holder
		default:
			err = s.node.checkUptime(minUptime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// onRelease notes the reply to a release, and returns its error.
func (s *nodeState) onRelease(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.err = s.held && err != nil, err
	return err
}

// vote returns what the node said last.
func (s *nodeState) vote() Vote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Vote{Addr: s.node.addr, Held: s.held, Err: s.err}
}
