package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// ofAllTypes returns formats for keys of all types, and lockOfAllTypes sets one lock of each, and a string and a
// hash that are longer than a substitute may read.
func ofAllTypes() ScanOptions {
	all := []keyspace.Format{tokens()}
	for _, typ := range collections {
		all = append(all, elementsOf(typ))
	}
	return ScanOptions{Formats: all}
}

func lockOfAllTypes(t *testing.T, rdb *redis.Client) {
	do(t, rdb, "SET", "string", "token:1", "PX", 600_000)
	do(t, rdb, "SET", "long", "token:"+strings.Repeat("x", valueBytes))
	do(t, rdb, "HSET", "lock:hash", "b", "2", "a", "1")
	many := []any{"HSET", "lock:many"}
	for i := range maxElements + 1 {
		many = append(many, i, i)
	}
	do(t, rdb, many...)
	do(t, rdb, "RPUSH", "lock:list", "a")
	do(t, rdb, "SADD", "lock:set", "a")
	do(t, rdb, "ZADD", "lock:zset", 1, "a")
	do(t, rdb, "XADD", "lock:stream", "*", "a", "b")
}

// Each command that reads a key is replaced by another one, within its bounds, or the snapshot says which keys it
// lacks, and why.
func TestAReadThatIsDeniedIsReplacedOrSaid(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	lockOfAllTypes(t, admin)
	all := keys(scan(t, admin, ofAllTypes()))
	check.Equal(t, len(all), 8, "locks")
	because := func(n int, typ, command string) string {
		return fmt.Sprintf("%s of type %s cannot be read, because this user may not run %s", map[int]string{1: "1 key", 2: "2 keys"}[n], typ, command)
	}
	// Redis 6.0 does not have PEXPIRETIME.
	exact := fmt.Sprint(do(t, admin, "COMMAND", "INFO", "pexpiretime")) != "[<nil>]"
	for _, c := range []struct{ without, missing, said string }{
		{"", "", ""},
		{"-getrange", "long", because(1, "string", "GETRANGE")},
		{"-getrange -get", "long string", because(2, "string", "GETRANGE")},
		{"-strlen", "long string", because(2, "string", "STRLEN")},
		{"-getrange -strlen", "long string", because(2, "string", "GETRANGE")},
		{"-hscan", "lock:many", because(1, "hash", "HSCAN")},
		{"-hscan -hgetall", "lock:hash lock:many", because(2, "hash", "HSCAN")},
		{"-hlen", "lock:hash lock:many", because(2, "hash", "HLEN")},
		{"-llen", "lock:list", because(1, "list", "LLEN")},
		{"-lrange", "lock:list", because(1, "list", "LRANGE")},
		{"-scard", "lock:set", because(1, "set", "SCARD")},
		{"-sscan", "lock:set", because(1, "set", "SSCAN")},
		{"-zcard", "lock:zset", because(1, "zset", "ZCARD")},
		{"-zrange", "lock:zset", because(1, "zset", "ZRANGE")},
		{"-xlen -lrange", "lock:list lock:stream", because(1, "list", "LRANGE") + ", and " + because(1, "stream", "XLEN")},
		{"-pttl -pexpiretime", strings.Join(all, " "), because(2, "hash", "P")},
		{"-pttl", map[bool]string{false: strings.Join(all, " ")}[exact], map[bool]string{false: because(2, "hash", "PTTL")}[exact]},
		{"-pexpiretime -memory -hrandfield -lindex -srandmember -zrandmember", "", ""},
	} {
		rights := append(strings.Fields("reset on >secret ~* -@all +@read +@connection +info +time +memory"), strings.Fields(c.without)...)
		s := scan(t, userOf(t, admin, rights...), ofAllTypes())
		missing := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return slices.Contains(keys(s), key) })
		said := strings.Join(s.Problems, "; ")
		check.True(t, strings.Join(missing, " ") == c.missing && strings.Contains(said, c.said) && (said == "") == (c.missing == ""),
			"%s: %q are missing, want %q; it says %q, want %q", c.without, missing, c.missing, said, c.said)
		check.True(t, s.Scanned() && s.Complete == (c.missing == "") && s.Nodes[0].Unread != "" == (c.missing != "") && s.Cost.Keys == 8, "%s: %+v", c.without, s)
		for _, key := range missing {
			read, err := NewScanner(userOf(t, admin, rights...), ofAllTypes()).ReadKey(t.Context(), key)
			check.True(t, err == nil && !read.Complete && len(read.Problems) > 0, "%s: read alone, %s is complete: %v", c.without, key, err)
			_, err = NewScanner(userOf(t, admin, rights...), ofAllTypes()).ReadLock(t.Context(), key)
			check.ErrorIs(t, err, ErrUnreadable, "%s: %s", c.without, key)
		}
	}
}

// A key that has ended when it is read is not one that could not be read.
func TestAKeyThatIsGoneIsNotUnread(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "a", "token:1")
	rdb := userOf(t, admin, strings.Fields("reset on >secret ~* +@all -getrange -get")...)
	end := func() { do(t, admin, "DEL", "a") }
	before(rdb, "strlen").Store(&end)
	s := scan(t, rdb, justTokens())
	check.True(t, s.Complete && len(s.Locks) == 0, "it says %q", s.Problems)
}

// A command that is renamed counts like one that is not permitted.
func TestARenamedCommandIsReplacedOrSaid(t *testing.T) {
	t.Parallel()
	rdb := realServer(t, "--rename-command", "GETRANGE", "", "--rename-command", "LLEN", "")
	lockOfAllTypes(t, rdb)
	s := scan(t, rdb, ofAllTypes())
	check.True(t, slices.Equal(keys(s), []string{"lock:hash", "lock:many", "lock:set", "lock:stream", "lock:zset", "string"}) && !s.Complete, "found %q", keys(s))
	check.True(t, strings.Contains(s.Problems[0], "1 key of type list cannot be read, because the server does not have LLEN, and 1 key of type string cannot be read, because the server does not have GETRANGE"),
		"it says %q", s.Problems)
}

// Without DBSIZE the keys are counted as SCAN returns them.
func TestWithoutDBSizeTheKeysAreCounted(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	lockOfAllTypes(t, admin)
	user := userOf(t, admin, strings.Fields("reset on >secret ~* +@all -dbsize")...)
	s := scan(t, user, ofAllTypes())
	check.True(t, s.Complete && s.Cost.Keys == 8 && s.Cost.Scanned == 8, "it has %+v", s.Cost)
	do(t, admin, "EVAL", "for i = 1, 2000 do redis.call('SET', i, i) end return 1", 0)
	w := watch(t, user, ofAllTypes())
	for known := 0; known < 20; { // the number of a pass holds until the next has ended
		check.NoError(t, w.scanSome(t.Context(), time.Time{}))
		if s = w.Known(); s.Complete {
			check.Require(t, s.Nodes[0].Keys == 2008, "a watcher knows of %d", s.Nodes[0].Keys)
			known++
		}
	}
}

// A watcher is complete as soon as it may read all keys. A lock that it may read at last has not begun then, and
// its waiters appear.
func TestAWatcherIsCompleteWhenItMayReadAllKeys(t *testing.T) {
	testtier.Long(t, "it waits for several scans")
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "job:a", "token:1")
	do(t, admin, "RPUSH", "job:a:queue", "token:2")
	do(t, admin, "HSET", "lock:hash", "a", "1")
	f := watch(t, userOf(t, admin, "on", ">secret", "~*", "&*", "+@all", "-lrange", "-hlen"), ScanOptions{Formats: []keyspace.Format{queuedTokens(), elementsOf("hash")}})
	want := "1 key of type hash cannot be read, because this user may not run HLEN, and 1 key of type list cannot be read, because this user may not run LRANGE"
	for passes := map[any]bool{}; len(passes) < 2; {
		s := followed(t, f, keyspace.Snapshot.Scanned)
		passes[s.Nodes[0].ScannedAt] = true
		check.Require(t, !s.Complete && s.Nodes[0].Unread == want && len(s.Locks) == 1 && len(s.Locks[0].Waiters) == 0, "it has %q and %q", keys(s), s.Nodes[0].Unread)
	}
	s := followed(t, f, func(s keyspace.Snapshot) bool { return s.Watch.Mode == keyspace.Push })
	check.NoError(t, servertest.SetUser(t.Context(), admin, "tester", "+hlen"))
	scanned := s.Nodes[0].ScannedAt
	followed(t, f, func(s keyspace.Snapshot) bool {
		return len(s.Locks) == 2 && s.Nodes[0].ScannedAt.Sub(scanned) > passEvery
	})
	check.NoError(t, servertest.SetUser(t.Context(), admin, "tester", "+lrange"))
	s = followed(t, f, func(s keyspace.Snapshot) bool { return s.Complete && len(s.Locks[0].Waiters) == 1 })
	check.Equal(t, s.Locks[0].Key, "job:a")
	check.True(t, s.Locks[1].Holders[0].Since.IsZero(), "it may have been there before: %+v", s.Locks[1].Holders)
	check.NoError(t, servertest.SetUser(t.Context(), admin, "tester", "-hlen"))
	do(t, admin, "HSET", "lock:other", "a", "1")
	followed(t, f, func(s keyspace.Snapshot) bool { return !s.Complete })
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := f.Snapshot(ended)
	s = f.Known()
	check.True(t, err != nil && s.Scanned() && !s.Complete && len(s.Problems) > 0, "at the end of a watch: %v, complete %v, problems %q", err, s.Complete, s.Problems)
}
