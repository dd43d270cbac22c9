package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// nodeState is where one copy of a [Redlock] stands, or may stand. As a wire it is the
// node's, until it is shut.
type nodeState struct {
	*node

	mu       sync.Mutex
	closed   bool  // shut
	inFlight int   // requests that may have made a copy, or may yet
	held     bool  // the copy was there when the node last answered
	err      error // why it is not, or why the node does not answer
}

var (
	errCopyGone  = errors.New("its copy is gone")
	errReleasing = fmt.Errorf("%w: the lock was given back", ErrClosed)
)

// failedReply is the reply to what was not sent.
type failedReply struct{ error }

func (u failedReply) wait(context.Context) error { return u.error }

// send implements [wire]. A script that has to be sent again comes by here, too.
func (s *nodeState) send(ctx context.Context, cmd *command) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return failedReply{errReleasing}
	}
	return s.node.send(ctx, cmd)
}

// closeAcquires lets nothing pass any more. It reports whether the site is suspect.
func (s *nodeState) closeAcquires() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.held || s.inFlight > 0
}

// probablyHeld reports whether the copy was there when the node last answered, or the
// node was asked for it and has not answered since.
func (s *nodeState) probablyHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0 && s.err != errCopyGone
}

// mayHold reports whether a copy may stand there, or come to stand there yet.
func (s *nodeState) mayHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0
}

// onSend notes that a request which can make a copy is about to be sent.
func (s *nodeState) onSend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
}

// onAcquire notes what came of it. A node that is too young has a copy then, but no
// vote: it returns why.
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
		s.err = s.checkUptime(minUptime)
	}
	return s.err
}

// onExtend notes what came of an extension, and returns why it is none.
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

// onPeek notes what came of a look, and returns why we would not get the lock there.
func (s *nodeState) onPeek(key string, reply any, err error, minUptime time.Duration) error {
	if err == nil {
		holder, _, nonsense := parseAcquire(key, reply)
		switch {
		case nonsense != nil:
			err = nonsense
		case holder != nil && holder.Token != "":
			err = holder
		default:
			err = s.checkUptime(minUptime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// onRelease notes what came of the release, and returns why it came to nothing.
func (s *nodeState) onRelease(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.err = s.held && err != nil, err
	return err
}

// vote returns what is known of the node.
func (s *nodeState) vote() Vote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Vote{Addr: s.addr, Held: s.held, Err: s.err}
}
