package inspect

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// farFrom sets 10,000 keys, 100 of them locks, on a server, and returns a
// client with the given round trip time.
func farFrom(t *testing.T, roundTrip time.Duration) *redis.Client {
	t.Helper()
	link := netfault.New(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	rdb := redis.NewClient(&redis.Options{Addr: servertest.RedisForTest(t).Addr(), Dialer: link.Dial, PipelinePoolSize: -1})
	t.Cleanup(func() { rdb.Close() })
	check.Must(rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 10_000 {
			if i%100 == 0 {
				p.Set(t.Context(), fmt.Sprintf("lock:%d", i), "token:a", time.Hour)
			} else {
				p.Set(t.Context(), fmt.Sprintf("user:%d", i), "ann", 0)
			}
		}
		return nil
	}))(t)
	link.Delay(func() time.Duration { return roundTrip / 2 })
	return rdb
}

// polite returns options with the default budget.
func polite() ScanOptions {
	o := justTokens()
	o.Budget = NewBudget(DefaultShare)
	return o
}

// A scan of a distant server reads one page while it requests the next, so each
// step covers several pages.
func TestAFarServerIsScannedInStepsOfSeveralPages(t *testing.T) {
	testtier.Long(t, "its network is slow")
	t.Parallel()
	steps := func(roundTrip time.Duration) (n int) {
		o := polite()
		o.Progress = func(keyspace.Snapshot) { n++ }
		snap, err := NewScanner(farFrom(t, roundTrip), o).Scan(t.Context())
		check.Require(t, err == nil && len(snap.Locks) == 100 && snap.Complete, "%d locks, %v", len(snap.Locks), err)
		return n
	}
	check.AtMost(t, steps(50*time.Millisecond), 17, "steps, which would be 22 with one page per step,")
	check.AtLeast(t, steps(0), 8, "steps for a server that is near, where a step of several pages is beyond the budget")
}
