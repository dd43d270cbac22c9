package server

import (
	"context"
	"errors"
	"os"
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
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := StartChild(ctx, ChildOptions{Args: args})
	if errors.Is(err, ErrNotInstalled) && os.Getenv(RequireRedis) == "" {
		t.Skip("redis-server is not on PATH: install it (apt-get install redis-server, brew install redis) to run this test")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Nothing is kept, so a crash is as good an end as a shutdown, which
		// takes up to 100 ms.
		if err := errors.Join(c.Kill(), c.Stop()); err != nil {
			t.Fatal(err)
		}
	})
	return c
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
