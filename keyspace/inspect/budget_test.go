package inspect

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/keyspace"
)

func TestOnlySharesOfTheTimeAreBudgets(t *testing.T) {
	for _, share := range []float64{-1, 0, 1, 2} {
		p := NewBudget(share)
		check.True(t, p == nil && p.Share() == 1, "a pace of %v holds up", share)
	}
	check.Equal(t, NewBudget(0.1).Share(), 0.1, "a pace of a tenth has a share of")
}

// keepAsking charges the budget for so many requests, each of which keeps the server busy for busy,
// as fast as the budget allows. It returns the time that they take.
func keepAsking(t *testing.T, p *Budget, requests int, busy, way time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	for range requests {
		check.NoError(t, p.wait(t.Context(), time.Now()))
		time.Sleep(busy + way)
		p.charge(busy, way, time.Now())
	}
	return time.Since(begin)
}

// Promise P8.
func TestTheServerIsNoMoreBusyWithUsThanTheBudgetSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy = time.Millisecond
		p := NewBudget(0.1)
		keepAsking(t, p, 100, busy, 0) // spends what was saved before
		check.Between(t, keepAsking(t, p, 1000, busy, 0), 9900*time.Millisecond, 10100*time.Millisecond, "1,000 requests of 1 ms take 10 s, and took")
		time.Sleep(time.Hour)
		check.AtLeast(t, keepAsking(t, p, 1000, busy, 0), 9700*time.Millisecond, "after an hour of rest they took")
	})
}

// A person who waits for the first locks waits for the server's budget alone.
func TestTheFirstPassWaitsForTheBudgetOnly(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		b := NewBudget(0.1)
		w := watch(t, rdb, ScanOptions{Budget: b})
		b.charge(100*time.Millisecond, 0, time.Now())
		w.scan.pass = &scanPass{cursors: cursors{all: make([]cursor, 1)}}
		w.deferScan(time.Now().Add(-time.Second))
		check.Equal(t, time.Until(w.scan.next), 800*time.Millisecond, "the first pass continues after")
		w.scan.complete = true
		w.deferScan(time.Now().Add(-time.Second))
		check.Equal(t, time.Until(w.scan.next), 9*time.Second, "the next one continues after")
	})
}

// The base round trip is learnt from the fastest replies, not from a first reply that was late. A longer one, as after a
// failover to another location, becomes the base after a while; until then the scan sends less, but continues.
func TestASlowerNetworkReducesTheBudget(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		requests    int // each keeps the server busy for 1 ms
		way         time.Duration
		least, most time.Duration // 0 = any
	}
	for name, steps := range map[string][]step{
		"network time is not server time": {{100, 3 * ms, 0, 0}, {1000, 3 * ms, 0, 10100 * ms}},
		"a slower network reduces the budget": {
			{100, 2 * ms, 0, 0}, {100, 6 * ms, 5000 * ms, 0},
			{10, 2 * ms, 0, 0}, {100, 2 * ms, 0, 1100 * ms},
		},
		"a late first reply is not the base":          {{1, 50 * ms, 0, 0}, {10, ms, 0, 0}, {100, 6 * ms, 5000 * ms, 0}},
		"a lasting slow network becomes normal":       {{100, 2 * ms, 0, 0}, {1000, 6 * ms, 0, 170_000 * ms}, {100, 6 * ms, 0, 1100 * ms}},
		"a fraction of a millisecond reduces nothing": {{100, ms / 10, 0, 0}, {100, 6 * ms / 10, 0, 1100 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := NewBudget(0.1)
			for i, s := range steps {
				check.Between(t, keepAsking(t, p, s.requests, ms, s.way), s.least, cmp.Or(s.most, time.Hour),
					"%s: step %d, %d requests on a way of %v took", name, i+1, s.requests, s.way)
			}
		})
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewBudget(0.001)
		p.charge(time.Hour, 0, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.ErrorIs(t, p.wait(ctx, time.Now()), context.DeadlineExceeded)
		check.True(t, !p.allow(time.Now()), "it is ready long before its time")
	})
}

// The last step only verifies the server. Its budget is spent, and the scan ends at once.
func TestTheLastStepOfAScanDoesNotWaitForTheBudget(t *testing.T) {
	scan := func(t *testing.T, rdb *redis.Client) {
		p := NewBudget(0.1)
		o := ScanOptions{Budget: p, Progress: func(keyspace.Snapshot) { p.charge(time.Hour, 0, time.Now()) }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := NewScanner(rdb, o).Scan(ctx)
		check.NoError(t, err)
	}
	t.Run("embedded", func(t *testing.T) {
		bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
			began := time.Now()
			scan(t, rdb)
			check.AtMost(t, time.Since(began), time.Second, "the scan takes")
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		scan(t, realServer(t))
	})
}

// A list of the clients does not wait until a server is no longer slow. The embedded server has none.
func TestAListOfTheClientsWaitsForTheBudgetOnlyBriefly(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		p, began := NewBudget(0.1), time.Now()
		p.charge(time.Hour, 0, began)
		_, _, err := NewScanner(rdb, ScanOptions{Budget: p}).Clients(t.Context(), nil)
		check.True(t, err != nil && time.Since(began) >= maxClientsWait, "%v after %v", err, time.Since(began))
		check.AtMost(t, time.Since(began), 2*maxClientsWait, "the list waits")
	})
}

// A rescan goes on at once and without the limit until its pass has ended, and the first pass is not begun again for it.
func TestARescanHasNoLimit(t *testing.T) {
	p, asked, now := NewBudget(0.1), new(atomic.Int64), time.Now()
	w := watch(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), ScanOptions{Budget: p, Rescans: asked})
	p.charge(time.Hour, 0, now)
	for i, complete := range []bool{false, true} {
		w.scan.pass, w.scan.complete, w.scan.next = &scanPass{}, complete, now.Add(time.Hour)
		w.beginRescan()
		check.True(t, !p.allow(now) && w.scan.next.After(now), "%d: it begins before it is asked for", i)
		asked.Add(1)
		w.beginRescan()
		p.charge(time.Hour, 0, now)
		w.endRescan()
		check.True(t, p.allow(now) && w.scan.next.IsZero() && w.scan.again == complete, "%d: it is limited", i)
		w.scan.pass = &scanPass{verified: true}
		w.endRescan()
		p.charge(time.Hour, 0, now)
		check.True(t, !p.allow(now), "%d: there is no limit after it", i)
	}
}
