package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// site is where one copy of a [Redlock] stands, or may stand. As a wire it is the
// node's, until it is shut.
type site struct {
	*node

	mu   sync.Mutex
	over bool  // shut
	open int   // requests that may have made a copy, or may yet
	held bool  // the copy was there when the node last answered
	err  error // why it is not, or why the node does not answer
}

var (
	errGone       = errors.New("its copy is gone")
	errHandedBack = fmt.Errorf("%w: the lock was given back", ErrClosed)
)

// unsent is the reply to what was not sent.
type unsent struct{ error }

func (u unsent) wait(context.Context) error { return u.error }

// send implements [wire]. A script that has to be sent again comes by here, too.
func (s *site) send(ctx context.Context, cmd *command) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return unsent{errHandedBack}
	}
	return s.node.send(ctx, cmd)
}

// shut lets nothing pass any more. It reports whether the site is suspect.
func (s *site) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.held || s.open > 0
}

// stands reports whether the copy was there when the node last answered, or the
// node was asked for it and has not answered since.
func (s *site) stands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.open > 0 && s.err != errGone
}

// suspect reports whether a copy may stand there, or come to stand there yet.
func (s *site) suspect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.open > 0
}

// taking notes that a request which can make a copy is about to be sent.
func (s *site) taking() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
}

// took notes what came of it. A node that is too young has a copy then, but no
// vote: it returns why.
func (s *site) took(key string, reply any, err error, minUptime time.Duration) error {
	var held *HeldError
	if err == nil {
		held, _, err = heldBy(key, reply)
	}
	unknown := outcomeUnknown(err)
	if held != nil {
		err = held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unknown {
		s.open--
	}
	s.held, s.err = err == nil, err
	if err == nil {
		s.err = s.tooYoung(minUptime)
	}
	return s.err
}

// kept notes what came of an extension, and returns why it is none.
func (s *site) kept(reply any, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err == nil {
		s.held = reply == int64(1)
	}
	if err == nil && !s.held {
		s.err = errGone
	}
	return s.err
}

// saw notes what came of a look, and returns why we would not get the lock there.
func (s *site) saw(key string, reply any, err error, minUptime time.Duration) error {
	if err == nil {
		holder, _, nonsense := heldBy(key, reply)
		switch {
		case nonsense != nil:
			err = nonsense
		case holder != nil && holder.Token != "":
			err = holder
		default:
			err = s.tooYoung(minUptime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// left notes what came of the release, and returns why it came to nothing.
func (s *site) left(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.err = s.held && err != nil, err
	return err
}

// vote returns what is known of the node.
func (s *site) vote() Vote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Vote{Addr: s.addr, Held: s.held, Err: s.err}
}
