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
	"locktop/internal/servertest"
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

// rivals returns for every kind of lock on one server the lock of another client that it
// keeps out.
func rivals(c *client, key string) map[string]lock.Locker {
	all := everyKind(c, key, lock.Options{})
	all["reader"] = c.RW(key+"-reader", lock.Options{}).Writer()
	return all
}

// delayed checks that the rival gets the lock of an ended lease when the delay is over,
// and not earlier. ended is when the lease ended at the latest; exact times apply under a
// fake clock.
func (r *rig) delayed(kind string, rival *await, ended time.Time, delay time.Duration) {
	r.Helper()
	next := r.won(rival)
	over := time.Since(ended)
	check.True(r, over >= delay && (!r.fake || over <= delay+100*time.Millisecond) && !tooLate(over, delay+5*time.Second),
		"%s: another client had the lock %v after the end of the lease, want %v", kind, over, delay)
	r.must(next.Unlock(ctx))
}

// A lease expires, also after renewals and an Extend: nobody gets in for the delay. After Renew.MaxHold the
// lock is released when the delay is over, not only when the TTL has passed.
func TestAnExpiredLockStaysHeldForTheDelay(t *testing.T) {
	onBothLong(t, "leases of milliseconds end early on a busy machine", func(r *rig) {
		ttl, delay := 300*time.Millisecond, 700*time.Millisecond
		if !r.fake {
			ttl = 3 * time.Second // Extend gets its reply before
		}
		var all sync.WaitGroup
		for _, end := range []struct {
			name string
			of   lock.Options
			act  func(*lock.Lease)
		}{
			{"acquired", lock.Options{TTL: ttl, Delay: delay, Renew: lock.Renew{Off: true}}, func(*lock.Lease) {}},
			{"renewed", lock.Options{TTL: ttl, Delay: delay, Renew: lock.Renew{Max: 2}}, func(*lock.Lease) {}},
			{"max hold", lock.Options{TTL: time.Minute, Delay: delay, Renew: lock.Renew{MaxHold: 100 * time.Millisecond}}, func(*lock.Lease) {}},
			{"extended", lock.Options{TTL: time.Minute, Delay: delay, Renew: lock.Renew{Off: true}}, func(l *lock.Lease) { r.must(l.Extend(ctx, ttl)) }},
		} {
			c, _ := r.process("holder")
			other, _ := r.process("rival")
			for kind, l := range everyKind(c, end.name, end.of) {
				all.Go(func() {
					lease := r.locked(l)
					end.act(lease)
					<-lease.Context().Done()
					rival := rivals(other, end.name)[kind]
					r.refused(rival)
					r.delayed(end.name+" "+kind, lockAsync(ctx, rival), lease.Deadline(), delay)
				})
			}
		}
		all.Wait()
	})
}

// Unlock and Close free the lock at once.
func TestADelayDoesNotApplyToARelease(t *testing.T) {
	onBothLong(t, "leases of milliseconds end early on a busy machine", func(r *rig) {
		o := lock.Options{TTL: time.Minute, Delay: time.Hour}
		other, _ := r.process("rival")
		for kind, rival := range rivals(other, "orders") {
			c, _ := r.process("holder")
			lease := r.locked(everyKind(c, "orders", o)[kind])
			refused := other.Stats().Events[lock.Contended]
			next := lockAsync(ctx, rival)
			r.until("the rival to wait", func() bool { return other.Stats().Events[lock.Contended] > refused })
			r.must(lease.Unlock(ctx))
			r.must(r.won(next).Unlock(ctx))
			r.locked(everyKind(c, "orders", o)[kind])
			refused = other.Stats().Events[lock.Contended]
			next = lockAsync(ctx, rival)
			r.until("the rival to wait again", func() bool { return other.Stats().Events[lock.Contended] > refused })
			r.must(c.Close())
			r.must(r.won(next).Unlock(ctx))
		}
	})
}

// The holder loses contact while renewals are in flight, and the server gets them later.
// Then the holder undoes them: not before the delay is over.
func TestALostLeaseIsNotUndoneBeforeTheDelay(t *testing.T) {
	inBubble(t, func(r *rig) {
		const ttl, delay = 600 * time.Millisecond, 3 * time.Second
		other, _ := r.process("rival")
		for kind, rival := range rivals(other, "orders") {
			c, link := r.process("holder")
			lease := r.locked(everyKind(c, "orders", lock.Options{TTL: ttl, Delay: delay})[kind])
			time.Sleep(time.Second)
			link.Freeze()
			<-lease.Context().Done()
			check.Equal(r, context.Cause(lease.Context()), lock.ErrLost, "%s: the lease ended with", kind)
			ended := time.Now()
			next := lockAsync(ctx, rival)
			link.Thaw() // the server gets the renewals
			r.delayed(kind, next, ended, delay)
			r.must(c.Close())
		}
	})
}

// After the loss of one key the others stay held for the delay.
func TestTheOtherKeysOfALostAllStayHeldForTheDelay(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		const delay = 200 * time.Millisecond
		lease := r.locked(all(r.client(lock.Config{}), lock.Options{TTL: time.Minute, Delay: delay, Renew: lock.Renew{Every: 20 * time.Millisecond}}, "a", "b"))
		other, _ := r.process("rival")
		next := lockAsync(ctx, other.Mutex("a", lock.Options{}))
		before := time.Now()
		r.must(r.rdb.Del(ctx, "b").Err())
		r.until("the end of the lease", func() bool { return !lease.Valid() })
		r.delayed("all", next, before, delay)
	})
}

// A fair lock that is handed over within a process has the delay, too, and a grant that is
// older than the TTL is not taken for a lease.
func TestAHandedOverFairLockHasTheDelay(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := lock.Options{TTL: time.Second, Delay: 10 * time.Second, Renew: lock.Renew{Off: true}}
		c, _ := r.process("holder")
		lease := r.locked(c.Fair("orders", o))
		next := lockAsync(ctx, c.As("next").Fair("orders", o))
		r.queued("orders", 1)
		r.must(lease.Unlock(ctx))
		lease = r.won(next)
		check.Equal(r, r.rdb.PTTL(ctx, "orders").Val(), 11*time.Second, "PTTL")
		<-lease.Context().Done()
		other, _ := r.process("rival")
		r.delayed("fair", lockAsync(ctx, other.Fair("orders", lock.Options{})), lease.Deadline(), o.Delay)
	})
}

func TestARedlockThatExpiresStaysHeldForTheDelay(t *testing.T) {
	nodesOnBothLong(t, 3, "it waits for the ends of leases", func(r *nodes) {
		const ttl, delay = 2 * time.Second, 2 * time.Second
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		other := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		for name, o := range map[string]lock.Options{
			"acquired": {TTL: ttl, Delay: delay, Renew: lock.Renew{Off: true}},
			"renewed":  {TTL: ttl, Delay: delay, Renew: lock.Renew{Max: 1}},
			"max hold": {TTL: time.Minute, Delay: delay, Renew: lock.Renew{MaxHold: 100 * time.Millisecond}},
		} {
			lease := r.lock(q.Redlock(name, o))
			next := lockAsync(ctx, other.Redlock(name, lock.Options{}))
			<-lease.Context().Done()
			<-next.done
			r.must(next.err)
			if over := time.Since(lease.Deadline()); over < delay || over > delay+10*r.nodeTimeout() {
				r.Errorf("%s: another client had the lock %v after the end of the lease, want %v", name, over, delay)
			}
			r.must(next.lease.Unlock(ctx))

			lease = r.lock(q.Redlock(name, o))
			r.must(lease.Unlock(ctx))
			lease = r.locked(other.Redlock(name, o))
			r.must(lease.Unlock(ctx))
		}
	})
}

// kept checks the remaining TTL that a refused client is told. On a real server of a busy
// machine, the answer may take some seconds.
func (r *rig) kept(what string, rival lock.Locker, most, slack time.Duration) {
	r.Helper()
	if !r.fake {
		slack = max(slack, 9*time.Second)
	}
	check.Between(r, r.heldBy(rival).TTL, most-slack, most, "%s: the TTL", what)
}

// Every request that sets a TTL adds the delay: the first attempt, a plain command, that of
// a waiter, another entry, a renewal, and the confirmation by replicas.
func TestEveryRequestSetsTheTTLWithTheDelay(t *testing.T) {
	nodes := onReplicas(t, servertest.ReplicatedOptions{Replicas: 1})
	onBothLong(t, "leases of milliseconds end early on a busy machine", func(r *rig) {
		o := lock.Options{TTL: 20 * time.Second, Delay: time.Minute}
		const want = 80 * time.Second
		c, _ := r.process("holder")
		other, _ := r.process("rival")
		for kind, l := range everyKind(c, "orders", o) {
			rival := rivals(other, "orders")[kind]
			for range 2 {
				lease := r.locked(l)
				r.kept(kind, rival, want, time.Second)
				r.must(lease.Unlock(ctx))
			}
			holding := r.locked(rival)
			next := lockAsync(ctx, l)
			if r.fake {
				time.Sleep(5 * time.Second)
			}
			r.must(holding.Unlock(ctx))
			lease := r.won(next)
			r.kept(kind+", after a wait", rival, want, time.Second)
			if r.fake {
				time.Sleep(5 * time.Minute)
				r.kept(kind+", renewed", rival, want, o.TTL/3)
			}
			r.must(lease.Extend(ctx, 30*time.Second))
			if slices.Contains(reenterable, kind) {
				again := r.locked(l)
				r.kept(kind+", entered again", rival, want+10*time.Second+10*time.Millisecond, time.Second)
				r.must(again.Unlock(ctx))
			}
			r.must(lease.Unlock(ctx))
		}
	})
	o := lock.Options{TTL: 20 * time.Second, Delay: time.Minute, Replicas: 1}
	for kind, l := range everyKind(nodes.client(lock.Config{}), "orders", o) {
		lease := nodes.locked(l)
		nodes.kept(kind, rivals(nodes.client(lock.Config{}), "orders")[kind], 80*time.Second, time.Second)
		nodes.must(lease.Unlock(ctx))
	}
}
