package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// Scenario 44.
func TestAWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Hour).Err())
		short := r.soon(3 * time.Second)
		began := time.Now()
		_, err := r.client(lock.Config{}).Mutex("orders", lock.Options{}).Lock(short)
		check.True(r, errors.Is(err, context.DeadlineExceeded) && errors.Is(err, lock.ErrHeld), "got %v, want both the deadline and ErrHeld", err)
		check.Between(r, time.Since(began), 3*time.Second, 3050*time.Millisecond, "gave up after")
	})
}

// Scenario 42: the release comes between the failed attempt and the subscription.
func TestNoWakeUpIsLostOnTheWayIntoTheQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		var lease *lock.Lease
		a := r.client(lock.Config{Owner: "a"})
		b := r.client(lock.Config{Owner: "b", Observe: func(e lock.Event) {
			if e.Kind == lock.Contended { // between the two
				r.must(lease.Unlock(ctx))
			}
		}})
		for i := range 20 {
			key := fmt.Sprint("orders", i%3)
			lease = r.lock(a.Mutex(key, lock.Options{TTL: time.Minute}))
			began := time.Now()
			next := r.lock(b.Mutex(key, lock.Options{TTL: time.Minute}))
			took := time.Since(began)
			check.Require(r, took <= 0, "round %d: b slept for %v though the lock was free", i, took)
			r.must(next.Unlock(ctx))
		}
	})
}

// Scenario 43, promise P4: no message tells of the end of these leases.
// Two clients of one process wait. The first gets the lock at the deadline of a crashed
// holder, and crashes as well. The second gets the lock at the deadline of the first.
func TestEachWaiterSucceedsACrashedHolderAtItsDeadline(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.locked(r.client(lock.Config{}).Mutex("orders", fixed(7*time.Second)))
		c := r.client(lock.Config{})
		began := time.Now()
		first := lockAsync(ctx, c.As("first").Mutex("orders", fixed(3*time.Second)))
		time.Sleep(time.Second)
		limited := r.soon(time.Minute)
		second := lockAsync(limited, c.As("second").Mutex("orders", lock.Options{}))
		r.won(first)
		lease := r.won(second)
		check.Between(r, time.Since(began), 10*time.Second, 10050*time.Millisecond, "the second waiter succeeded after")
		r.must(lease.Unlock(ctx))
	})
}

func TestAForeignLockIsLookedAtNowAndThen(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Hour).Err())
		var deleted sync.WaitGroup
		defer deleted.Wait()
		deleted.Go(func() {
			time.Sleep(10 * time.Second)
			check.ErrorIs(r, r.rdb.Del(ctx, "orders").Err(), nil)
		})
		began := time.Now()
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		check.AtMost(r, time.Since(began), 10300*time.Millisecond, "noticed after")
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 45, in one process: 100 goroutines of one client, and 100 clients, need few
// attempts per release.
//
// Promise P4.
func TestNoHerd(t *testing.T) {
	for name, identity := range map[string]func(*client, int) *client{
		"goroutines": func(c *client, _ int) *client { return c },
		"identities": func(c *client, i int) *client { return c.As(fmt.Sprint("id", i)) },
	} {
		sub(t, name, onRedis, func(r *rig) {
			const n = 100
			diary := &eventRecorder{}
			c := r.client(lock.Config{Observe: diary.write})
			first := r.lock(c.As("first").Mutex("orders", lock.Options{TTL: time.Minute}))
			var all sync.WaitGroup
			for i := range n {
				who := identity(c, i)
				all.Go(func() {
					check.ErrorIs(r, pass(who.Mutex("orders", lock.Options{TTL: time.Minute})), nil)
				})
			}
			want := n
			if name == "goroutines" {
				want = 1
			}
			r.until("everybody to wait", func() bool { return diary.count(lock.Contended) >= want })
			r.must(first.Unlock(ctx))
			all.Wait()
			attempts := 0
			for _, e := range diary.events {
				if e.Kind == lock.Acquired {
					attempts += e.Attempts
				}
			}
			check.AtMost(r, attempts, 3*(n+1), "attempts for %d acquisitions", n+1)
		})
	}
}

// Scenario 85.
func TestCancelledWaitersLeaveNothingBehind(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Minute).Err())
		waiting, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				check.ErrorIs(r, tried(c.As(fmt.Sprint(i)).Mutex("orders", lock.Options{}).Lock(waiting)), context.Canceled)
			})
		}
		cancel()
		all.Wait()
		r.holds("orders", "stranger")
	})
}

// A waiter survives a restart of the server.
func TestAWaiterSurvivesAnOutage(t *testing.T) {
	for name, wait := range map[string]lock.Wait{"in the queue": {}, "polling": {Poll: 50 * time.Millisecond}} {
		sub(t, name, inBubble, func(r *rig) {
			r.must(r.rdb.Set(ctx, "orders", "stranger", time.Hour).Err())
			got := lockAsync(ctx, r.client(lock.Config{}).Mutex("orders", lock.Options{Wait: wait}))
			time.Sleep(time.Second)
			r.link.Refuse(errors.New("no route"))
			r.link.Cut()
			time.Sleep(time.Minute)
			check.Require(r, !got.over(), "the wait ended in the outage")
			r.link.Refuse(nil)
			r.must(r.rdb.Del(ctx, "orders").Err())
			r.won(got)
		})
	}
}

// S6: a limited number of attempts, with a pause between them.
func TestPollingTriesAsOftenAsItsOptionsSay(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Hour).Err())
		c := r.client(lock.Config{})
		began := time.Now()
		_, err := c.Mutex("orders", lock.Options{Wait: lock.Wait{Poll: 100 * time.Millisecond, MaxTries: 3}}).Lock(ctx)
		check.ErrorIs(r, err, lock.ErrHeld)
		check.Equal(r, time.Since(began), 200*time.Millisecond, "three tries took")
		go func() {
			time.Sleep(time.Second)
			r.must(r.rdb.Del(ctx, "orders").Err())
		}()
		began = time.Now()
		lease := r.lock(c.Mutex("orders", lock.Options{Wait: lock.Wait{Poll: 300 * time.Millisecond}}))
		check.Equal(r, time.Since(began), 1200*time.Millisecond, "got in after")
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 46.
func TestJitterSpreadsThePauses(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Hour).Err())
		c := r.client(lock.Config{})
		took := make(map[time.Duration]bool)
		for range 20 {
			began := time.Now()
			_, err := c.Mutex("orders", lock.Options{Wait: lock.Wait{Poll: time.Second, Jitter: 0.5, MaxTries: 2}}).Lock(ctx)
			check.Require(r, errors.Is(err, lock.ErrHeld), "%v", err)
			pause := time.Since(began)
			check.Between(r, pause, 500*time.Millisecond, 1500*time.Millisecond, "a pause of 1 s ± 50 %%")
			took[pause] = true
		}
		check.AtLeast(r, len(took), 10, "different pauses in 20")
	})
}

// Scenario 41: a waiter learns of the release by a message. On a server the median
// must be shorter than any poll interval; its value depends on the machine.
//
// Promise P4.
func TestAReleaseWakesAWaiterAtOnce(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		a, b := r.client(lock.Config{Owner: "a"}).Mutex("orders", lock.Options{}), r.client(lock.Config{Owner: "b"}).Mutex("orders", lock.Options{})
		rounds := testtier.Size(20, 100, 100)
		var took []time.Duration
		for range rounds {
			lease := r.lock(a)
			next := lockAsync(ctx, b)
			r.untilListening("orders", 1)
			began := time.Now()
			r.must(lease.Unlock(ctx))
			after := r.won(next)
			took = append(took, time.Since(began))
			r.must(after.Unlock(ctx))
		}
		slices.Sort(took)
		r.Logf("handed on after %v (median), %v (p99)", took[rounds/2], took[rounds*99/100])
		check.True(r, (!r.fake || took[rounds-1] <= 0) && took[rounds/2] <= 100*time.Millisecond,
			"handed on after %v (median), %v (longest)", took[rounds/2], took[rounds-1])
	})
}

// A waiter whose context ends names the holder, whatever it was doing.
func TestAWaiterThatEndsDuringAnAttemptNamesTheHolder(t *testing.T) {
	for name, waiter := range map[string]func(*client) lock.Locker{
		"listening": func(c *client) lock.Locker { return c.Mutex("orders", lock.Options{}) },
		"polling": func(c *client) lock.Locker {
			return c.Mutex("orders", lock.Options{Wait: lock.Wait{Poll: 250 * time.Millisecond}})
		},
		"in a queue": func(c *client) lock.Locker { return c.Fair("orders", lock.Options{}) },
	} {
		sub(t, name, inBubble, func(r *rig) {
			r.must(r.rdb.Set(ctx, "orders", "stranger", 0).Err())
			short := r.soon(3 * time.Second)
			waiting := lockAsync(short, waiter(r.client(lock.Config{})))
			time.Sleep(time.Second)
			r.link.FreezeReplies() // the next request gets no reply
			<-waiting.done
			check.True(r, errors.Is(waiting.err, context.DeadlineExceeded) && errors.Is(waiting.err, lock.ErrHeld),
				"got %v, want both the deadline and ErrHeld", waiting.err)
			r.link.Thaw()
		})
	}
}
