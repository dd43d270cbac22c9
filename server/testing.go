package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"
)

// TB is what the servers for tests need of a *testing.T or *testing.B. The
// package testing itself stays out of the program.
type TB interface {
	Helper()
	Cleanup(func())
	Skip(args ...any)
	Fatal(args ...any)
}

// RequireRedis names the environment variable that turns a test which would be
// skipped for want of a redis-server into one that fails. CI sets it.
const RequireRedis = "LOCKTOP_REQUIRE_REDIS"

// startLimit bounds the start of a child in a test; it takes some 20 ms.
const startLimit = 30 * time.Second

// ForTest starts a redis-server with these further arguments that ends with the
// test. Every call starts one of its own. Where redis-server is not installed
// the test is skipped, with a line that says how to install it, or fails if
// LOCKTOP_REQUIRE_REDIS is set.
func ForTest(t TB, args ...string) *Child {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Child, error) {
		return StartChild(ctx, ChildOptions{Args: args})
	}, func(c *Child) error { return children{c}.stop() })
}

// DebugForTest is [ForTest] for a test that sends DEBUG. Redis 7.0 and later
// allow DEBUG by an option that Redis 6 refuses to start with and does not need.
func DebugForTest(t TB, args ...string) *Child {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Child, error) {
		c, err := StartChild(ctx, ChildOptions{Args: append([]string{"--enable-debug-command", "local"}, args...)})
		if err != nil && strings.Contains(err.Error(), "Bad directive") {
			return StartChild(ctx, ChildOptions{Args: args})
		}
		return c, err
	}, func(c *Child) error { return children{c}.stop() })
}

// EmbeddedForTest starts an embedded server on a loopback port that ends with
// the test.
func EmbeddedForTest(t TB) *Embedded {
	t.Helper()
	e, err := StartEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// forTest starts something that ends with the test.
func forTest[S any](t TB, start func(context.Context) (S, error), stop func(S) error) S {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s, err := start(ctx)
	if errors.Is(err, ErrNotInstalled) && os.Getenv(RequireRedis) == "" {
		t.Skip("redis-server is not on PATH: install it (apt-get install redis-server, brew install redis) to run this test")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(s); err != nil {
			t.Fatal(err)
		}
	})
	return s
}
