package formats_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// metered is a connection that counts the bytes received.
type metered struct {
	net.Conn
	bytes *atomic.Int64
}

func (c metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// A key with the name of a lock that is too large for one is shown as
// oversized. Very large elements are not fetched.
func TestAnOversizedValueIsShownWithItsSize(t *testing.T) {
	t.Parallel()
	const huge = 4 << 20
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	run := func(script string, keys ...string) {
		err := rdb.Eval(t.Context(), script, keys, huge).Err()
		check.Require(t, err == nil || err == redis.Nil, "%v", err)
	}
	run(`for i = 1, 1000 do
		redis.call('HSET', KEYS[1], 'worker:' .. i, '1')
		redis.call('RPUSH', KEYS[2], 'worker:' .. i)
		redis.call('SADD', KEYS[3], 'worker:' .. i)
		redis.call('ZADD', KEYS[4], i, 'worker:' .. i)
		redis.call('XADD', KEYS[5], '*', 'worker', i)
	end`, "lock:hash", "lock:list", "lock:set", "lock:zset", "lock:stream")
	run(`redis.call('SETRANGE', KEYS[1], ARGV[1] - 1, 'x')`, "lock:string")
	run(`local huge = string.rep('x', ARGV[1])
		redis.call('HSET', KEYS[1], 'owner', 'web-1', 'payload', huge)
		redis.call('RPUSH', KEYS[2], 'web-1', huge)`, "mutex:hash", "mutex:list")
	var received atomic.Int64
	counted := server.NewClient(servertest.AddrOf(rdb), server.ClientOptions{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return metered{conn, &received}, err
		},
	})
	defer counted.Close()
	snap := scanFor(t, counted, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
	got := make(map[string]string)
	for _, l := range snap.Locks {
		got[l.Key] = strings.Join(l.Evidence[1:], "; ")
		check.True(t, l.Format == "oversized" && l.Confidence == keyspace.Possible && l.Kind == keyspace.Unknown && len(l.Holders) == 0,
			"found %+v", l)
	}
	want := map[string]string{
		"lock:hash":   "a hash of 1000 elements is too big for a lock",
		"lock:list":   "a list of 1000 elements is too big for a lock",
		"lock:set":    "a set of 1000 elements is too big for a lock",
		"lock:zset":   "a zset of 1000 elements is too big for a lock",
		"lock:stream": "a stream of 1000 elements is too big for a lock",
		"lock:string": "a string of 4194304 bytes is too big for a lock",
		"mutex:hash":  "a hash of megabytes, which is not read, is too big for a lock",
		"mutex:list":  "a list of megabytes, which is not read, is too big for a lock",
	}
	check.True(t, maps.Equal(got, want), "found %q, want %q", got, want)
	check.AtMost(t, received.Load(), 1<<20, "bytes were fetched for that")
	load(t, rdb, []string{"CONFIG", "RESETSTAT"})
	sure := scan(t, rdb).Locks
	check.True(t, len(sure) == 0, "without being asked for, it shows %v", sure)
	check.True(t, !strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_lrange"),
		"without being asked for, it reads them")
}

// A watcher knows a large value from its scan, and a small one that becomes large. It reads
// the elements of neither, however often they change.
func TestAWatcherNeverReadsTheElementsOfAnOversizedValue(t *testing.T) {
	t.Parallel()
	const element, changes = 100_000, 5
	for _, tracking := range []bool{true, false} {
		t.Run(fmt.Sprint("tracking ", tracking), func(t *testing.T) {
			t.Parallel()
			rdb := connect(t, servertest.RedisForTest(t).Addr())
			patient := server.NewClient(servertest.AddrOf(rdb), server.ClientOptions{Timeout: time.Minute, NoRetry: true})
			t.Cleanup(func() { patient.Close() })
			fill := func(key string) {
				const script = `for i = 1, 30 do redis.call('HSET', KEYS[1], '6ba7b810-9dad-41d1-80b4-0000000000' .. (10 + i) .. ':1', string.rep('x', ARGV[1])) end`
				err := patient.Eval(t.Context(), script, []string{key}, element).Err()
				check.Require(t, err == nil || err == redis.Nil, "%v", err)
			}
			fill("lock:large")
			check.NoError(t, rdb.HSet(t.Context(), "lock:growing", "6ba7b810-9dad-41d1-80b4-000000000011:1", 1).Err())
			called := func(command string) (calls int) {
				for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
					_, _ = fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &calls)
				}
				return calls
			}
			via := rdb
			if !tracking {
				check.NoError(t, servertest.SetUser(t.Context(), rdb, "untracked", "reset", "on", ">secret", "~*", "+@all", "-client", "+client|setname", "+client|id"))
				via = server.NewClient(servertest.AddrOf(rdb), server.ClientOptions{Username: "untracked", Password: "secret"})
				t.Cleanup(func() { via.Close() })
			}
			w := follow(t, inspect.NewScanner(via, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}))
			oversized := func(key string) bool {
				return slices.ContainsFunc(w.Known().Locks, func(l *keyspace.Lock) bool { return l.Key == key && l.Format == "oversized" })
			}
			w.await(t, func() bool { return oversized("lock:large") && len(w.Known().Locks) == 2 })
			fill("lock:growing")
			w.await(t, func() bool { return oversized("lock:growing") })
			before := called("hscan")
			for i := range changes {
				checked := called("hlen")
				for _, key := range []string{"lock:large", "lock:growing"} {
					check.NoError(t, rdb.HSet(t.Context(), key, "changes", i).Err())
				}
				w.await(t, func() bool { return called("hlen") > checked })
			}
			after := called("hscan")
			check.True(t, after <= before, "the elements were read %d times", after-before)
		})
	}
}
