package external

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// Library is what a client process locks with; see [Serve].
type Library struct {
	// Hello connects to the servers of a hello. ctx ends with bye.
	Hello func(ctx context.Context, r Request) (Hello, error)
	// Lock acquires the lock of a request, until ctx ends. It returns ErrHeld, or the error of
	// ctx, if another client holds the lock.
	Lock func(ctx context.Context, r Request) (Hold, error)
	// Least is how long a request that must not wait may take.
	Least time.Duration
}

// Hold is a lock that a [Library] holds.
type Hold struct {
	Deadline time.Time
	Fence    int64
	Unlock   func(context.Context) error                                          // may return ErrLost
	Extend   func(context.Context, time.Duration) (deadline time.Time, err error) // may return ErrLost; nil: the library cannot
	Lost     <-chan struct{}                                                      // closed when the library notices a loss; nil: never
	// Renewed has the deadline of each renewal, and is closed after the last one; nil: the
	// library does not show them.
	Renewed <-chan time.Time
}

// Serve is a client process: it speaks the protocol on in and out, until bye, the end of in or
// the end of ctx. It returns the holds that are left, which the caller releases.
func Serve(ctx context.Context, l Library, in io.Reader, out io.Writer) (left []Hold, err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &service{library: l, ctx: ctx, out: json.NewEncoder(out), holds: make(map[string]Hold), waiting: make(map[int64]context.CancelFunc)}
	err = s.serve(in)
	cancel()
	s.tasks.Wait()
	return slices.Collect(maps.Values(s.holds)), err
}

// service is the state of Serve.
type service struct {
	library Library
	ctx     context.Context // ends with bye
	client  string          // its label
	tasks   sync.WaitGroup

	writing sync.Mutex
	out     *json.Encoder

	mu      sync.Mutex
	newest  int                          // number of the newest token
	holds   map[string]Hold              // by token
	waiting map[int64]context.CancelFunc // by the ID of the request
}

// say writes a line.
func (s *service) say(line any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.out.Encode(line) // without a reader, the end of stdin follows
}

// serve handles requests until bye. It returns an error about a line that is not one.
func (s *service) serve(in io.Reader) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("a line that is not a request: %w", err)
		}
		switch r.Op {
		case opHello:
			if err := s.hello(r); err != nil {
				s.say(outcomeOf(err))
				return err
			}
		case opCancel:
			s.mu.Lock()
			if cancel := s.waiting[r.ID]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
		case opBye:
			return nil
		default:
			ctx, cancel := context.WithCancel(s.ctx)
			s.mu.Lock()
			s.waiting[r.ID] = cancel
			s.mu.Unlock()
			s.tasks.Go(func() {
				defer cancel()
				reply := s.reply(ctx, r)
				s.mu.Lock()
				delete(s.waiting, r.ID)
				s.mu.Unlock()
				reply["id"] = r.ID
				s.say(reply)
				if token, granted := reply["token"].(string); granted {
					s.follow(token) // its events come after the token
				}
			})
		}
	}
	return nil
}

func (s *service) hello(r Request) error {
	if r.V != Version {
		return fmt.Errorf("version %d is unknown", r.V)
	}
	s.client = r.Client
	h, err := s.library.Hello(s.ctx, r)
	if err == nil {
		s.say(struct {
			OK bool `json:"ok"`
			Hello
		}{true, h})
	}
	return err
}

// reply runs a request.
func (s *service) reply(ctx context.Context, r Request) map[string]any {
	if r.Op == opLock {
		return s.lock(ctx, r)
	}
	s.mu.Lock()
	h, held := s.holds[r.Token]
	if r.Op == opUnlock {
		delete(s.holds, r.Token)
	}
	s.mu.Unlock()
	switch {
	case r.Op != opUnlock && r.Op != opExtend:
		return outcomeOf(errors.New("no such request: " + r.Op))
	case !held:
		return outcomeOf(ErrLost)
	case r.Op == opUnlock:
		return outcomeOf(h.Unlock(s.ctx))
	case h.Extend == nil:
		return outcomeOf(errors.New("this kind cannot extend a lease"))
	}
	deadline, err := h.Extend(s.ctx, milliseconds(r.TTL))
	reply := outcomeOf(err)
	if err == nil {
		reply["valid_ms"] = time.Until(deadline).Milliseconds()
	}
	return reply
}

func (s *service) lock(ctx context.Context, r Request) map[string]any {
	wait := time.Duration(0)
	if r.Wait != nil {
		wait = milliseconds(*r.Wait)
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, s.library.Least))
	defer cancel()
	h, err := s.library.Lock(ctx, r)
	switch {
	case errors.Is(err, ErrHeld) || ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return map[string]any{"ok": false, "held": true}
	case err != nil:
		return outcomeOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	token := fmt.Sprintf("%s-%d", s.client, s.newest)
	s.holds[token] = h
	return map[string]any{"ok": true, "token": token, "valid_ms": time.Until(h.Deadline).Milliseconds(), "fence": h.Fence}
}

// outcomeOf returns the reply to a request without a lease.
func outcomeOf(err error) map[string]any {
	switch {
	case errors.Is(err, ErrLost):
		return map[string]any{"ok": false, "lost": true}
	case err != nil:
		return map[string]any{"ok": false, "error": err.Error()}
	}
	return map[string]any{"ok": true}
}

// follow reports the renewals of a hold, and its loss, unless the hold is released.
func (s *service) follow(token string) {
	s.mu.Lock()
	h := s.holds[token]
	s.mu.Unlock()
	for h.Lost != nil || h.Renewed != nil {
		event := map[string]any{"event": "lost", "token": token}
		select {
		case <-s.ctx.Done():
			return
		case <-h.Lost:
			h.Lost, h.Renewed = nil, nil
		case deadline, more := <-h.Renewed:
			if !more {
				h.Renewed = nil
				continue
			}
			event["event"], event["valid_ms"] = "renewed", time.Until(deadline).Milliseconds()
		}
		s.mu.Lock()
		_, held := s.holds[token]
		s.mu.Unlock()
		if held {
			s.say(event)
		}
	}
}
