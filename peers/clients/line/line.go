// Package line is the part that the Go clients of locktop load --exec share: the line
// protocol of package loadgen/external on stdin and stdout.
package line

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"locktop/loadgen/external"
)

// ErrHeld and ErrLost are the errors of a library that have their own reply.
var (
	ErrHeld = errors.New("another client holds the lock")
	ErrLost = errors.New("the lock is lost")
)

// Hold is a lock that the library holds.
type Hold struct {
	Valid  time.Duration                                      // rest of the lease
	Unlock func(context.Context) error                        // may return ErrLost
	Extend func(context.Context, time.Duration) (Hold, error) // nil: the library cannot
	Lost   <-chan struct{}                                    // closed when the library notices a loss; nil: never
	// Renewed has the deadline of each renewal, and is closed after the last one; nil: the
	// library does not show them.
	Renewed <-chan time.Time
}

// Library is the lock library of a client.
type Library struct {
	Name          string
	Module        string // its path, for its version
	Kinds         []string
	Renews, Tells bool
	// Open connects to the servers and returns a function that waits for a lock until ctx
	// ends.
	Open func(urls []string) (Lock, error)
}

// Lock acquires a lock. It returns ErrHeld, or the error of ctx, if another client holds it.
type Lock func(ctx context.Context, key string, ttl time.Duration) (Hold, error)

// Serve serves the requests until bye.
func (l Library) Serve() {
	s := server{holds: make(map[string]Hold), waiting: make(map[int64]context.CancelFunc)}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r external.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch r.Op {
		case "hello":
			lock, err := l.Open(r.URLs)
			s.lock = lock
			s.say(0, err, map[string]any{"name": l.name(), "kinds": l.Kinds, "renews": l.Renews, "tells": l.Tells, "cancels": true})
		case "cancel":
			s.mu.Lock()
			if cancel := s.waiting[r.ID]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
		case "bye":
			s.releaseAll()
			return
		default:
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			s.mu.Lock()
			s.waiting[r.ID] = cancel
			s.mu.Unlock()
			go func() {
				defer cancel()
				s.serve(ctx, r)
				s.mu.Lock()
				delete(s.waiting, r.ID)
				s.mu.Unlock()
			}()
		}
	}
}

// name returns the module of the library with its version.
func (l Library) name() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == l.Module {
				return l.Name + " " + strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return l.Name
}

type server struct {
	lock Lock

	mu     sync.Mutex // also guards stdout
	newest int
	holds  map[string]Hold // by token

	waiting map[int64]context.CancelFunc // by the ID of the request
}

// say writes a reply: what, or the error.
func (s *server) say(id int64, err error, what map[string]any) {
	reply := map[string]any{"ok": err == nil}
	switch {
	case errors.Is(err, ErrHeld), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		reply["held"] = true
	case errors.Is(err, ErrLost):
		reply["lost"] = true
	case err != nil:
		reply["error"] = err.Error()
	default:
		maps.Copy(reply, what)
	}
	if id > 0 {
		reply["id"] = id
	}
	s.write(reply)
}

func (s *server) write(line map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line) // without a reader, stdin ends, too
}

func (s *server) serve(ctx context.Context, r external.Request) {
	ttl := time.Duration(r.TTL) * time.Millisecond
	s.mu.Lock()
	h := s.holds[r.Token]
	s.mu.Unlock()
	switch r.Op {
	case "lock":
		// Also the only request of a client that must not wait takes its time.
		waiting, cancel := context.WithTimeout(ctx, max(time.Duration(*r.Wait)*time.Millisecond, 100*time.Millisecond))
		defer cancel()
		h, err := s.lock(waiting, r.Key, ttl)
		s.say(r.ID, err, map[string]any{"token": s.keep(h, err), "valid_ms": h.Valid.Milliseconds()})
	case "unlock":
		s.mu.Lock()
		delete(s.holds, r.Token)
		s.mu.Unlock()
		s.say(r.ID, unlocked(h.Unlock(ctx)), nil)
	case "extend":
		if h.Extend == nil {
			s.say(r.ID, errors.New("the library cannot extend a lock"), nil)
			return
		}
		longer, err := h.Extend(ctx, ttl)
		s.say(r.ID, unlocked(err), map[string]any{"valid_ms": longer.Valid.Milliseconds()})
	}
}

// unlocked makes a time-out an error: only a lock may be held by another client.
func unlocked(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no reply in time")
	}
	return err
}

// keep records a hold and returns its token.
func (s *server) keep(h Hold, err error) string {
	if err != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	token := fmt.Sprint(os.Getpid(), "-", s.newest)
	s.holds[token] = h
	if h.Lost != nil {
		go func() {
			<-h.Lost
			s.tell(token, map[string]any{"event": "lost", "token": token})
		}()
	}
	if h.Renewed != nil {
		go func() {
			for deadline := range h.Renewed {
				s.tell(token, map[string]any{"event": "renewed", "token": token, "valid_ms": time.Until(deadline).Milliseconds()})
			}
		}()
	}
	return token
}

// tell writes an event about a lock, unless the client has released it.
func (s *server) tell(token string, event map[string]any) {
	s.mu.Lock()
	_, held := s.holds[token]
	s.mu.Unlock()
	if held {
		s.write(event)
	}
}

func (s *server) releaseAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	s.mu.Lock()
	holds := maps.Clone(s.holds)
	clear(s.holds)
	s.mu.Unlock()
	for _, h := range holds {
		_ = h.Unlock(ctx) // its TTL ends it
	}
}
