package server

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
)

// A test has the server of an earlier one, without anything that the earlier one left there. A
// server with other settings, or that does not run, is not given to another test.
func TestAServerOfAnEarlierTestIsLikeNew(t *testing.T) {
	t.Parallel()
	ForTest(t) // skips where there is no redis-server
	ctx := t.Context()
	var s idleServers
	s.keep()
	defer s.stop()
	take := func() *Child {
		c := check.Must(s.take(ctx))(t)
		t.Cleanup(func() { _ = children{c}.stop() })
		return c
	}
	put := func(c *Child) {
		check.ErrorIs(t, s.put(c), nil)
	}
	first := take()
	rdb := redis.NewClient(&redis.Options{Addr: first.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer rdb.Close()
	if version := rdb.Info(ctx, "server").Val(); strings.Contains(version, "redis_version:6.") {
		t.Skip("a server before Redis 7.0 is not given to another test; put a newer redis-server on PATH")
	}
	sha := rdb.ScriptLoad(ctx, "return 1").Val()
	for _, command := range []string{"SET k v", "ACL SETUSER ann on", "CLIENT PAUSE 600000 WRITE"} {
		check.NoError(t, rdb.Do(ctx, words(command)...).Err(), "%s", command)
	}
	listening := rdb.Subscribe(ctx, "c")
	defer listening.Close()
	check.NoError(t, first.Freeze())
	put(first)
	check.Require(t, s.began[first] != "", "the server is not kept for another test")
	check.Require(t, take() == first, "the second test has another server")
	fresh := redis.NewClient(&redis.Options{Addr: first.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer fresh.Close()
	check.Equal(t, fresh.PubSubNumSub(ctx, "c").Val()["c"], 0, "clients of the first test are connected")
	check.True(t, fresh.Exists(ctx, "k").Val() == 0 && !fresh.ScriptExists(ctx, sha).Val()[0] && fresh.Set(ctx, "k", "w", 0).Err() == nil && len(fresh.Do(ctx, "ACL", "USERS").Val().([]any)) == 1,
		"it has something of the first test")

	for what, change := range map[string]func(*Child) error{
		"setting": func(c *Child) error { return dial(c).ConfigSet(ctx, "maxmemory", "1mb").Err() },
		"user":    func(c *Child) error { return dial(c).Do(ctx, words("ACL SETUSER default -debug")...).Err() },
		"role":    func(c *Child) error { return dial(c).Do(ctx, words("REPLICAOF 127.0.0.1 1")...).Err() },
		"end":     (*Child).Kill,
	} {
		c := take()
		check.NoError(t, change(c), "%s", what)
		if put(c); take() == c || c.PID() != 0 {
			t.Errorf("a server with another %s is kept", what)
		}
	}
}
