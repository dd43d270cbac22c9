package cli

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// turnover acquires and releases locks on a server until ctx ends, and counts them.
type turnover struct{ acquired atomic.Int64 }

func (w *turnover) run(ctx context.Context, rdb *redis.Client, name string, hold time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("lock:%s:%d", name, n%7)
		if rdb.SetNX(ctx, key, token, time.Minute).Err() == nil {
			w.acquired.Add(1)
		}
		time.Sleep(hold)
		_ = rdb.Del(context.WithoutCancel(ctx), key).Err()
		time.Sleep(10 * time.Millisecond)
	}
}

// With LOCKTOP_PROOF: real stalls of 1, 3 and 10 s, by a stopped process and by a slow
// command, and a network with 300 ms. The figures follow within two updates and a round
// trip, and all changes outside of an outage are counted.
func TestAnExportAfterRealStalls(t *testing.T) {
	testtier.Proof(t, "it takes minutes")
	for _, c := range []struct {
		name  string
		stall time.Duration
		delay time.Duration // one way
		debug bool          // by DEBUG SLEEP, instead of SIGSTOP
	}{
		{"SIGSTOP", time.Second, 0, false}, {"SIGSTOP", 3 * time.Second, 0, false}, {"SIGSTOP", 10 * time.Second, 0, false},
		{"DEBUG SLEEP", time.Second, 0, true}, {"DEBUG SLEEP", 3 * time.Second, 0, true}, {"DEBUG SLEEP", 10 * time.Second, 0, true},
		{"slow network", 0, 150 * time.Millisecond, false},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.stall), func(t *testing.T) {
			child := server.DebugForTest(t)
			rdb := clientWith(t, redis.Options{Addr: child.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
			network := netfault.New(redis.NewDialer(rdb.Options()))
			proxy := check.Must(network.Listen("tcp", child.Addr()))(t)
			defer proxy.Close()
			network.Delay(func() time.Duration { return c.delay })
			send(t, child.Addr(), "SET", "lock:standing", token)
			e := startReadyExport(t, "-u", "redis://"+proxy.Addr())
			var work turnover
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var workers sync.WaitGroup
			hold := 50*time.Millisecond + 10*c.delay // longer than the watcher takes to see it
			for i := range 1 + 10*c.delay/time.Second {
				workers.Go(func() { work.run(ctx, rdb, fmt.Sprint("w", i), hold) })
			}
			time.Sleep(5 * time.Second)
			switch {
			case c.debug:
				check.NoError(t, rdb.Do(t.Context(), "DEBUG", "SLEEP", c.stall.Seconds()).Err())
			case c.stall > 0:
				check.NoError(t, child.Freeze())
				time.Sleep(c.stall)
				check.NoError(t, child.Continue())
			}
			back, before := time.Now(), e.value("locktop_events_total", `event="acquired"`)
			within(t, longestWait, func() bool {
				return e.value("locktop_up") == 1 && e.time("locktop_last_answer_timestamp_seconds").After(back) && e.value("locktop_events_total", `event="acquired"`) > before
			})
			if took := time.Since(back); took > 2*time.Second+2*c.delay+500*time.Millisecond {
				t.Errorf("the next update was %v after the stall", took)
			} else {
				t.Logf("the next update was %v after the stall", took)
			}
			before = e.value("locktop_events_total", `event="acquired"`)
			acquired := work.acquired.Load()
			longest, last, at := time.Duration(0), before, time.Now()
			for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
				if now := e.value("locktop_events_total", `event="acquired"`); now != last {
					longest, last, at = max(longest, time.Since(at)), now, time.Now()
				}
			}
			stop()
			workers.Wait()
			time.Sleep(5 * time.Second)
			acquired = work.acquired.Load() - acquired
			counted := e.value("locktop_events_total", `event="acquired"`) - before
			t.Logf("at most %v between two updates; %d acquired since the update, %.0f counted; %.0f dropped", longest, acquired, counted, e.value("locktop_events_dropped_total"))
			check.True(t, int64(counted) >= acquired && e.value("locktop_events_dropped_total") == 0, "%d acquired, %.0f counted", acquired, counted)
		})
	}
}
