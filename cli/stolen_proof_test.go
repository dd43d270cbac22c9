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
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/lock"
)

// The program watches ten clients of package lock that take turns at two keys
// for 1 ms each, while another client deletes and acquires some held locks.
// watch reports the thefts, and reports no proper release as a theft.
func TestWatchReportsStolenLocksAndNoOthers(t *testing.T) {
	testtier.Long(t, "it watches a race for seconds")
	t.Parallel()
	holds, thefts := int64(testtier.Size(1000, 1000, 20_000)), testtier.Size(20, 20, 200) // holds of 1 ms each
	rdb := clientWith(t, redis.Options{Addr: server.ForTest(t).Addr(), PoolSize: 64})
	seen := watchAsAProgram(t, rdb)
	keys := []string{"lock:race:1", "lock:race:2"}

	var honest atomic.Int64
	var clients sync.WaitGroup
	robbing, over := context.WithCancel(t.Context())
	defer over()
	for n := range 10 {
		client := newLockClient(t, rdb, fmt.Sprintf("client-%d", n))
		clients.Go(func() {
			for i := n; honest.Load() < holds || robbing.Err() == nil; i++ {
				lease, err := client.Mutex(keys[i%len(keys)], lock.Options{}).Lock(t.Context())
				if err != nil {
					t.Errorf("client-%d: %v", n, err)
					return
				}
				time.Sleep(time.Millisecond)  // the work under the lock
				_ = lease.Unlock(t.Context()) // an error means that the thief has deleted it
				honest.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	victims := make(map[string]bool)
	victim := newLockClient(t, rdb, "victim")
	for i := range thefts {
		lease := check.Must(victim.Mutex(keys[i%len(keys)], lock.Options{}).Lock(t.Context()))(t)
		time.Sleep(20 * time.Millisecond)
		check.NoError(t, steal(t.Context(), rdb, lease.Key(), fmt.Sprintf("thief~01a2005e-013e-7cdc-b26f-%012x", i), i%2 == 0))
		victims[lease.Token()] = true
		_ = lease.Unlock(t.Context())
		time.Sleep(20 * time.Millisecond)
	}
	over()
	clients.Wait()
	compareThefts(t, seen, victims, honest.Load(), testtier.Size(16, 16, 195)) // a busy machine reports fewer
}

func newLockClient(t *testing.T, rdb *redis.Client, owner string) *lock.Client {
	t.Helper()
	client := check.Must(lock.New(rdb, lock.Config{Owner: owner}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// steal deletes a lock and acquires it, in one transaction or with two
// commands. The thief holds it for 60 ms. Before the second command an honest
// client may acquire the lock.
func steal(ctx context.Context, rdb *redis.Client, key, token string, atOnce bool) error {
	if !atOnce {
		if err := rdb.Del(ctx, key).Err(); err != nil {
			return err
		}
		return rdb.SetNX(ctx, key, token, 60*time.Millisecond).Err()
	}
	p := rdb.TxPipeline()
	p.Del(ctx, key)
	p.Set(ctx, key, token, 60*time.Millisecond)
	_, err := p.Exec(ctx)
	return err
}

// robbed returns the holders for which a theft was reported.
func (w *witnessed) robbed() map[string]bool {
	told := make(map[string]bool)
	for c := range w.all() {
		if c.Event == keyspace.Stolen || c.Event == keyspace.Deleted {
			told[c.Holder] = true
		}
	}
	return told
}

// compareThefts compares the reported thefts with the real ones.
func compareThefts(t *testing.T, seen *witnessed, victims map[string]bool, honest int64, atLeast int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); len(seen.robbed()) < len(victims) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	told := seen.robbed()
	t.Logf("%d honest holds, %d thefts, %d told", honest, len(victims), len(told))
	for holder := range told {
		check.True(t, victims[holder], "a theft was told of %s, who was not robbed", holder)
	}
	check.True(t, len(told) >= atLeast, "%d of %d thefts were told", len(told), len(victims))
}
