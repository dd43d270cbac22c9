package servertest_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

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
