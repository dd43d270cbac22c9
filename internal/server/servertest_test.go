package server_test

// The tests of package servertest are here, in one binary with those of the servers that it starts.

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
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

// testsFunc takes the place of a [testing.M].
type testsFunc func()

func (f testsFunc) Run() int {
	f()
	return 0
}

// A test has the server of an earlier one, without anything that the earlier one left there. A
// server with other settings, or that does not run, is not given to another test.
func TestAServerOfAnEarlierTestIsLikeNew(t *testing.T) { // not parallel: the servers of other tests are not kept
	servertest.RedisForTest(t) // skips where there is no redis-server
	servertest.Tests{Parallel: 8, M: testsFunc(func() { takeTurns(t) })}.Run()
}

func takeTurns(t *testing.T) {
	ctx := t.Context()
	var all []*fakeTB
	defer func() {
		for _, v := range all {
			v.end()
		}
	}()
	begin := func() (*server.Child, *fakeTB) {
		var c *server.Child
		v := run(func(t servertest.TB) { c = servertest.RedisForTest(t) })
		check.Require(t, v.failed == "" && v.skipped == "", "a test ended with %q %q", v.failed, v.skipped)
		all = append(all, v)
		return c, v
	}
	first, v := begin()
	rdb := client(t, first.Addr())
	if version := rdb.Info(ctx, "server").Val(); strings.Contains(version, "redis_version:6.") {
		t.Skip("a server before Redis 7.0 is not given to another test; put a newer redis-server on PATH")
	}
	sha := rdb.ScriptLoad(ctx, "return 1").Val()
	check.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	check.NoError(t, rdb.Do(ctx, "ACL", "SETUSER", "ann", "on").Err())
	check.NoError(t, rdb.Do(ctx, "CLIENT", "PAUSE", 600_000, "WRITE").Err())
	listening := check.Must(net.Dial("tcp", first.Addr()))(t)
	defer listening.Close()
	check.Must(io.WriteString(listening, "SUBSCRIBE c\r\n"))(t)
	check.Must(listening.Read(make([]byte, 64)))(t)
	check.NoError(t, first.Freeze())
	v.end()
	second, _ := begin()
	check.Require(t, second == first, "the second test has another server")
	fresh := client(t, first.Addr())
	check.Equal(t, fresh.PubSubNumSub(ctx, "c").Val()["c"], 0, "clients of the first test are connected")
	check.True(t, fresh.Exists(ctx, "k").Val() == 0 && !fresh.ScriptExists(ctx, sha).Val()[0] &&
		fresh.Set(ctx, "k", "w", 0).Err() == nil && len(fresh.Do(ctx, "ACL", "USERS").Val().([]any)) == 1,
		"it has something of the first test")

	for what, change := range map[string]func(*server.Child) error{
		"setting": func(c *server.Child) error { return client(t, c.Addr()).ConfigSet(ctx, "maxmemory", "1mb").Err() },
		"user": func(c *server.Child) error {
			return client(t, c.Addr()).Do(ctx, "ACL", "SETUSER", "default", "-debug").Err()
		},
		"role": func(c *server.Child) error { return client(t, c.Addr()).ReplicaOf(ctx, "127.0.0.1", "1").Err() },
		"end":  (*server.Child).Kill,
	} {
		c, v := begin()
		check.NoError(t, change(c), "%s", what)
		v.end()
		if next, _ := begin(); next == c || c.PID() != 0 {
			t.Errorf("a server with another %s is kept", what)
		}
	}
}

func TestAUserHasTheRightsThatTheServerKnows(t *testing.T) {
	c := servertest.RedisForTest(t)
	rdb := client(t, c.Addr())
	err := servertest.SetUser(t.Context(), rdb, "ann", "on", ">pw", "resetchannels", "&news:*", "%R~open:*",
		"-@all", "+ping", "+get", "+set", "+no-such-command", "+client|setname")
	check.NoError(t, err)
	ann := client(t, c.Addr()).Pipeline() // on one connection
	auth := ann.Do(t.Context(), "AUTH", "ann", "pw")
	open, other, info := ann.Get(t.Context(), "open:a"), ann.Get(t.Context(), "other"), ann.Info(t.Context())
	_, _ = ann.Exec(t.Context()) // its error is that of a command
	check.ErrorIs(t, auth.Err(), nil, "AUTH")
	check.ErrorIs(t, open.Err(), redis.Nil, "GET of a key that she may read")
	if err := other.Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("GET of another key: %v", err)
	}
	if err := info.Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("INFO: %v", err)
	}
	if users, err := rdb.Do(t.Context(), "ACL", "USERS").StringSlice(); err != nil || len(users) != 2 {
		t.Errorf("there are the users %q, %v", users, err)
	}
}

// If a server cannot revoke a permission, SetUser returns an error.
func TestARightThatCannotBeTakenAwayIsAnError(t *testing.T) {
	rdb := client(t, servertest.RedisForTest(t).Addr())
	for _, rule := range []string{"-client|no-such-subcommand", "no-such-rule"} {
		check.True(t, servertest.SetUser(t.Context(), rdb, "ann", "+@all", rule) != nil, "%q was accepted", rule)
	}
}

func TestGroupsEndWithTheTest(t *testing.T) {
	testtier.Long(t, "it starts every group of servers")
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	var addrs []string
	v := run(func(t servertest.TB) {
		for _, nodes := range [][]*server.Child{
			servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{}).Nodes(),
			servertest.ClusterForTest(t, servertest.ClusterOptions{}).Nodes(),
		} {
			for _, node := range nodes {
				addrs = append(addrs, node.Addr())
			}
		}
		w := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{})
		addrs = append(append(addrs, w.Sentinels()...), w.Master().Addr())
	})
	check.Require(t, v.failed == "" && len(addrs) == 9, "%d servers, %s", len(addrs), v.failed)
	v.end()
	for _, addr := range addrs {
		check.True(t, !answers(addr), "%s answers after the test", addr)
	}
}

func TestGroupThatCannotStartIsAnErrorAndLeavesNothing(t *testing.T) {
	servertest.RedisForTest(t) // skips where there is no redis-server
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := servertest.StartCluster(ended, servertest.ClusterOptions{})
	check.True(t, err != nil, "a cluster started after its context's end")
	if _, err := servertest.StartSentinelGroup(t.Context(), servertest.SentinelOptions{Args: []string{"--no-such-option", "1"}}); err == nil {
		t.Error("servers started with an argument that does not exist")
	}
}
