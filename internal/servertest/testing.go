// Package servertest gives tests their Redis servers: those of package server, and groups of
// them with replicas, Sentinels and a cluster. Only tests import it; its own tests
// are in package server.
package servertest

import (
	"context"
	"errors"
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/server"
)

// TB is the part of *testing.T and *testing.B that this package uses. It keeps package
// testing out of the program.
type TB interface {
	Helper()
	Cleanup(func())
	Skip(args ...any)
	Fatal(args ...any)
}

// RequireRedis is the environment variable that makes tests fail, instead of skip,
// if redis-server is missing. CI sets it.
const RequireRedis = "LOCKTOP_REQUIRE_REDIS"

// startLimit is the longest start of a server in a test. It usually takes 20 ms.
const startLimit = 30 * time.Second

// Tests runs the tests of a package that wait for servers more than they use the CPU. It is for
// their TestMain.
type Tests struct {
	M        interface{ Run() int } // *testing.M
	Parallel int                    // how many parallel tests run at the same time; at most four under the race detector
}

// Run runs the tests. [RedisForTest] gives the server of a test to a later one. The tests have a temporary
// folder of their own, see [OwnTempDir].
func (ts Tests) Run() int {
	defer OwnTempDir()()
	SetParallel(ts.Parallel)
	idle.keep()
	defer idle.stop()
	return ts.M.Run()
}

// SetParallel sets how many parallel tests run at the same time; at most four under the race
// detector. It is for a TestMain without [Tests], where each test starts servers of its own.
func SetParallel(parallel int) {
	flag.Parse()
	raced := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, raced) {
		parallel = min(parallel, 4)
	}
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
}

// RedisForTest starts a redis-server with further arguments. The server ends with the test.
// Without further arguments it may be that of an earlier test, in the state of a new one. If
// redis-server is not installed, RedisForTest skips the test with installation instructions,
// or fails it if LOCKTOP_REQUIRE_REDIS is set.
func RedisForTest(t TB, args ...string) *server.Child {
	t.Helper()
	if len(args) == 0 {
		return forTest(t, idle.take, idle.put)
	}
	return forTest(t, func(ctx context.Context) (*server.Child, error) {
		return server.StartChild(ctx, server.ChildOptions{Args: args})
	}, func(c *server.Child) error { return children{c}.stop() })
}

// DebugForTest is [RedisForTest] for tests that send DEBUG. Redis 7.0 and later need an
// option for DEBUG, with which Redis 6 does not start.
func DebugForTest(t TB, args ...string) *server.Child {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*server.Child, error) {
		c, err := server.StartChild(ctx, server.ChildOptions{Args: append([]string{"--enable-debug-command", "local"}, args...)})
		if err != nil && strings.Contains(err.Error(), "Bad directive") {
			return server.StartChild(ctx, server.ChildOptions{Args: args})
		}
		return c, err
	}, func(c *server.Child) error { return children{c}.stop() })
}

// EmbeddedForTest starts an embedded server on a loopback port. The server ends with
// the test.
func EmbeddedForTest(t TB) *server.Embedded {
	t.Helper()
	e, err := server.StartEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// SkipUninstalled skips a test that needs redis-server, which is not on PATH. It returns if
// RequireRedis forbids that.
func SkipUninstalled(t TB) {
	t.Helper()
	if os.Getenv(RequireRedis) == "" {
		t.Skip("redis-server is not on PATH: install it (apt-get install redis-server, brew install redis) to run this test")
	}
}

// forTest calls start now and stop at the end of the test.
func forTest[S any](t TB, start func(context.Context) (S, error), stop func(S) error) S {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s, err := start(ctx)
	if errors.Is(err, server.ErrNotInstalled) {
		SkipUninstalled(t)
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

// IndependentForTest starts servers that end with the test. Without redis-server it
// skips or fails the test, like [RedisForTest].
func IndependentForTest(t TB, n int) *server.Independent {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*server.Independent, error) {
		return server.StartIndependent(ctx, n, server.ChildOptions{})
	}, (*server.Independent).Stop)
}

// OwnTempDir makes a directory like [server.TempDir], and has it be the temporary folder of this process and
// its children until end is called. On other systems than Linux it does nothing: the path of a socket
// there would be too long.
func OwnTempDir() (end func()) {
	if runtime.GOOS != "linux" {
		return func() {}
	}
	const name = "TMPDIR"
	before, set := os.LookupEnv(name)
	path, remove, err := server.TempDir()
	if err == nil {
		err = os.Setenv(name, path)
	}
	if err != nil {
		panic(err)
	}
	return func() {
		if set {
			_ = os.Setenv(name, before)
		} else {
			_ = os.Unsetenv(name)
		}
		_ = remove()
	}
}
