// Package line is the part that the Go clients of locktop load --exec share.
package line

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"locktop/loadgen/external"
)

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

// Lock acquires a lock. It returns external.ErrHeld, or the error of ctx, if another client holds
// it.
type Lock func(ctx context.Context, key string, ttl time.Duration) (external.Hold, error)

// Serve serves the requests on stdin until bye.
func (l Library) Serve() {
	var lock Lock
	left, err := external.Serve(context.Background(), external.Library{
		Hello: func(_ context.Context, r external.Request) (_ external.Hello, err error) {
			lock, err = l.Open(r.URLs)
			return external.Hello{Name: l.name(), Kinds: l.Kinds, Renews: l.Renews, Tells: l.Tells, Cancels: true}, err
		},
		Lock: func(ctx context.Context, r external.Request) (external.Hold, error) {
			return lock(ctx, r.Key, time.Duration(r.TTL)*time.Millisecond)
		},
		Least: 100 * time.Millisecond, // also the only request of a client that must not wait takes its time
	}, os.Stdin, os.Stdout)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	for _, h := range left {
		_ = h.Unlock(ctx) // its TTL ends it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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
