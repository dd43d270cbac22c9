package inspect_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// oversizedKeys are keys with names of locks and values that take the server long to read.
var oversizedKeys = []string{"lock:hash", "lock:huge", "lock:list", "lock:string"}

// loadOversizedKeys creates them.
func loadOversizedKeys(t *testing.T, rdb *redis.Client) {
	t.Helper()
	const fill = `
		for from = 1, 1000000, 3500 do
			local hash, plain = {}, {}
			for i = from, math.min(from + 3499, 1000000) do
				plain[#plain + 1] = 'worker:' .. i
				hash[#hash + 1], hash[#hash + 2] = plain[#plain], '1'
			end
			redis.call('HSET', 'lock:hash', unpack(hash))
			redis.call('RPUSH', 'lock:list', unpack(plain))
		end
		redis.call('HSET', 'lock:huge', 'owner', 'web-1', 'payload', string.rep('x', 100 * 2^20))
		return redis.call('HLEN', 'lock:hash') + redis.call('LLEN', 'lock:list')`
	patient := connect(t, redis.Options{Addr: rdb.Options().Addr, ReadTimeout: 5 * time.Minute, MaxRetries: -1})
	n := do(t, patient, "EVAL", fill, 0)
	check.Require(t, n == int64(2_000_000), "they have %v elements", n)
	do(t, patient, "SETRANGE", "lock:string", 512<<20-1, "x")
}

// slowest returns the longest time that the server spent on one command while f ran.
func slowest(t *testing.T, rdb *redis.Client, f func()) (time.Duration, []string) {
	t.Helper()
	do(t, rdb, "CONFIG", "SET", "slowlog-log-slower-than", "1000")
	do(t, rdb, "CONFIG", "SET", "slowlog-max-len", "1000")
	do(t, rdb, "SLOWLOG", "RESET")
	f()
	logged := check.Must(rdb.SlowLogGet(t.Context(), 1000).Result())(t)
	var worst redis.SlowLog
	for _, entry := range logged {
		if entry.Duration > worst.Duration {
			worst = entry
		}
	}
	return worst.Duration, worst.Args
}

// probe sends a cheap command again and again while f runs, and returns the longest round trip.
func probe(t *testing.T, addr string, f func()) time.Duration {
	t.Helper()
	rdb := connect(t, redis.Options{Addr: addr, PoolSize: 1})
	ctx, stop := context.WithCancel(t.Context())
	var worst time.Duration
	var probing sync.WaitGroup
	probing.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			if rdb.Ping(ctx).Err() == nil {
				worst = max(worst, time.Since(begin))
			}
		}
	})
	f()
	stop()
	probing.Wait()
	return worst
}

// However large a value is, reading it does not delay other clients. The test compares the longest
// delay of another client with and without the scan, in the best of several tries, because an
// absolute limit would depend on the machine.
func TestOversizedValuesDelayNoOtherClient(t *testing.T) {
	testtier.Long(t, "it measures delays beside values of megabytes")
	rdb := realServer(t)
	loadOversizedKeys(t, rdb)
	look := func() {
		s := scan(t, rdb, inspect.ScanOptions{Formats: []keyspace.Format{elementsOf("hash"), elementsOf("list"), elementsOf("string")}})
		got := keys(s)
		check.Require(t, slices.Equal(got, oversizedKeys), "it shows %q, want %q", got, oversizedKeys)
	}
	const stall = 5 * time.Millisecond
	var added, longest time.Duration
	var at []string
	for range 30 {
		quiet := probe(t, rdb.Options().Addr, func() { time.Sleep(50 * time.Millisecond) })
		longest, at = slowest(t, rdb, func() { added = probe(t, rdb.Options().Addr, look) - quiet })
		if added < stall {
			return
		}
	}
	t.Errorf("looking costs others %v, want less than %v; %.3q took the server %v", added, stall, at, longest)
}
