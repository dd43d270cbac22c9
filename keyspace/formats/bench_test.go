package formats_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

// BenchmarkScan finds five locks among 200,000 ordinary keys. It reports the
// time as a multiple of a plain SCAN COUNT 1000 of the same keyspace, which
// runs before it in every round. The figures are medians.
func BenchmarkScan(b *testing.B) {
	rdb := connect(b, server.ForTest(b).Addr())
	ordinary(b, rdb, 200_000)
	var bare, full, ratio []float64
	for b.Loop() {
		load(b, rdb, acceptance...) // again, because they expire
		begin := time.Now()
		walkBare(b, rdb)
		middle := time.Now()
		snap := scan(b, rdb)
		bare = append(bare, middle.Sub(begin).Seconds())
		full = append(full, time.Since(middle).Seconds())
		ratio = append(ratio, full[len(full)-1]/bare[len(bare)-1])
		check.Require(b, len(snap.Locks) == 5, "found %q, want five locks", keys(snap))
	}
	b.ReportMetric(1000*median(bare), "bare-ms")
	b.ReportMetric(1000*median(full), "scan-ms")
	b.ReportMetric(median(ratio), "scan/bare")
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// walkBare sees every key once in the cheapest way.
func walkBare(b testing.TB, rdb *redis.Client) {
	b.Helper()
	cursor := uint64(0)
	for {
		var err error
		_, cursor, err = rdb.Scan(b.Context(), cursor, "", 1000).Result()
		check.NoError(b, err)
		if cursor == 0 {
			return
		}
	}
}

// ordinary sets n keys as applications do, half of them with a TTL.
func ordinary(tb testing.TB, rdb *redis.Client, n int) {
	tb.Helper()
	p := rdb.Pipeline()
	for i := range n {
		id := fmt.Sprint(i)
		switch i % 5 {
		case 0:
			p.Do(tb.Context(), "SET", "user:"+id+":name", "somebody of the name of "+id)
		case 1:
			p.Do(tb.Context(), "HSET", "user:"+id, "name", "somebody", "logins", id, "city", "Graz")
		case 2:
			p.Do(tb.Context(), "RPUSH", "feed:"+id, "a", "b", id)
		case 3:
			p.Do(tb.Context(), "SADD", "tags:"+id, "red", "green", id)
		case 4:
			p.Do(tb.Context(), "ZADD", "ranking:"+id, id, "anna", "7", "bert")
		}
		if (i/5)%2 == 0 {
			key := [...]string{"user:" + id + ":name", "user:" + id, "feed:" + id, "tags:" + id, "ranking:" + id}[i%5]
			p.Do(tb.Context(), "PEXPIRE", key, "3600000")
		}
		if p.Len() > 2000 || i == n-1 {
			_, err := p.Exec(tb.Context())
			check.NoError(tb, err)
		}
	}
}
