package servertest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// fakeTB is a testing.TB that records how it ended. Like testing.T, it ends the
// goroutine that calls Skip or Fatal.
type fakeTB struct {
	skipped, failed string
	cleanups        []func()
}

func (v *fakeTB) Helper()          {}
func (v *fakeTB) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }
func (v *fakeTB) Skip(args ...any) { v.skipped = fmt.Sprint(args...); runtime.Goexit() }
func (v *fakeTB) Fatal(args ...any) {
	v.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

// end ends a test that has run.
func (v *fakeTB) end() {
	for _, f := range v.cleanups {
		f()
	}
	v.cleanups = nil
}

func run(test func(servertest.TB)) *fakeTB {
	v := &fakeTB{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(v)
	}()
	<-done
	return v
}

func TestWithoutRedisATestIsSkippedWithInstructionsOrFailsWhereItIsRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(servertest.RequireRedis, "")
	v := run(func(t servertest.TB) { servertest.RedisForTest(t) })
	check.True(t, strings.Contains(v.skipped, "apt-get install redis-server") && v.failed == "",
		"skipped with %q, failed with %q", v.skipped, v.failed)
	t.Setenv(servertest.RequireRedis, "1")
	v = run(func(t servertest.TB) { servertest.RedisForTest(t) })
	check.True(t, v.failed != "" && v.skipped == "", "skipped with %q, failed with %q", v.skipped, v.failed)
}

func TestServersForTestsEndWithTheTest(t *testing.T) {
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	var addrs []string
	v := run(func(t servertest.TB) {
		addrs = []string{servertest.RedisForTest(t).Addr(), servertest.EmbeddedForTest(t).Addr()}
	})
	for _, addr := range addrs {
		check.True(t, answers(addr), "%s does not answer during the test", addr)
	}
	v.end()
	for _, addr := range addrs {
		check.True(t, !answers(addr), "%s answers after the test", addr)
	}
}
