package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/testtier"
	"locktop/lock"
)

// Scenario 49.
func TestADayOfRenewals(t *testing.T) {
	inBubble(t, func(r *rig) {
		diary := &eventRecorder{}
		lease := r.lock(r.client(lock.Config{Observe: diary.write}).Mutex("orders", lock.Options{TTL: 2 * time.Minute}))
		minutes := testtier.Size(120, 24*60, 24*60)
		for range minutes {
			time.Sleep(time.Minute)
			ttl := r.rdb.PTTL(ctx, "orders").Val()
			check.Require(r, ttl >= 79*time.Second, "PTTL fell to %v", ttl)
		}
		// Every 40 s, up to 1/20 and 1/64 early.
		check.Between(r, diary.count(lock.Renewed), minutes*3/2-1, minutes*3/2*100/93+1, "renewals in %d minutes", minutes)
		check.True(r, lease.Valid(), "the lease was lost")
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 62. A batch is much cheaper than single renewals, so leases that began at any time are
// renewed at few instants.
func TestRenewalsOfManyLeasesGoTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		batches := make(map[time.Time]int)
		c := r.client(lock.Config{Observe: func(e lock.Event) {
			if e.Kind == lock.Renewed {
				mu.Lock()
				defer mu.Unlock()
				batches[e.At]++
			}
		}})
		leases := make([]*lock.Lease, testtier.Size(120, 500, 500))
		for i := range leases {
			leases[i] = r.lock(c.Mutex(fmt.Sprint("orders", i), lock.Options{TTL: 30 * time.Second}))
			time.Sleep(rand.N(20 * time.Millisecond))
		}
		time.Sleep(time.Minute)
		renewals := 0
		mu.Lock()
		defer mu.Unlock()
		for _, n := range batches {
			renewals += n
		}
		if most := 64 * 7; renewals < 5*len(leases) || len(batches) > most {
			r.Errorf("%d renewals in %d batches, want %d batches at most", renewals, len(batches), most)
		}
		runtime.KeepAlive(leases)
	})
}

// Scenario 50. The server knows neither IFEQ nor the script, so the renewal takes three requests. The
// release overtakes the last two.
func TestUnlockWaitsForEachRequestOfARenewal(t *testing.T) {
	inBubble(t, func(r *rig) {
		var requests atomic.Int64
		renewing := make(chan struct{}, 1)
		r.link.Sent = func(request []byte) {
			if bytes.Contains(request, []byte("orders")) {
				requests.Add(1)
			}
			if bytes.Contains(request, []byte("ifeq")) {
				renewing <- struct{}{}
			}
		}
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		r.must(r.locked(m).Unlock(ctx)) // the server knows the script of the release
		lease := r.locked(m)
		r.link.Delay(func() time.Duration { return time.Millisecond })
		<-renewing
		r.must(lease.Unlock(ctx))
		before := requests.Load()
		time.Sleep(time.Minute)
		check.Equal(r, requests.Load()-before, 0, "requests followed the unlock")
	})
}

// The replies to a renewal and to a release arrive together. The release suffices: the
// renewal is not undone, too.
func TestARenewalDuringAReleaseIsNotUndone(t *testing.T) {
	for name, release := range map[string]func(*client, *lock.Lease) error{
		"Unlock": func(_ *client, l *lock.Lease) error { return l.Unlock(ctx) },
		"Close":  func(c *client, _ *lock.Lease) error { return c.Close() },
	} {
		sub(t, name, inBubble, func(r *rig) {
			diary := &eventRecorder{}
			c := r.client(lock.Config{Observe: diary.write}).As("a")
			m := c.Mutex("orders", lock.Options{TTL: 30 * time.Second})
			warm := r.locked(m)
			r.must(warm.Extend(ctx, 30*time.Second))
			r.must(warm.Unlock(ctx)) // the server knows the scripts
			lease := r.locked(m)
			r.link.FreezeReplies()
			time.Sleep(10 * time.Second)
			ttl := r.rdb.PTTL(ctx, "orders").Val()
			check.Require(r, ttl >= 29*time.Second, "no renewal is in flight: PTTL %v", ttl)
			released := inBackground(func() error { return release(c, lease) })
			synctest.Wait()
			r.holds("orders", "")
			r.link.Thaw()
			r.must(<-released)
			time.Sleep(time.Second)
			check.Equal(r, diary.story(), "[acquired released acquired released]", "the events")
		})
	}
}

// Scenario 55.
func TestARenewalThatFindsAStrangerEndsTheLease(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{Renew: lock.Renew{Every: 100 * time.Millisecond}}))
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Minute).Err())
		<-lease.Context().Done()
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "ended with")
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost, "unlock ended with")
		r.holds("orders", "stranger")
		check.AtLeast(r, r.rdb.PTTL(ctx, "orders").Val(), 50*time.Second, "the stranger's PTTL")
	})
}

// Scenarios 52 and 60: whenever the holder is cut off, its context ends before its key
// expires.
//
// Promise P2.
func TestACutOffHolderEndsBeforeItsKey(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 1999 * time.Millisecond, 2900 * time.Millisecond, 4 * time.Second} {
		sub(t, fmt.Sprint(after), inBubble, func(r *rig) {
			lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 3 * time.Second}))
			time.Sleep(after)
			r.link.Freeze()
			<-lease.Context().Done()
			check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "ended with")
			check.False(r, lease.Valid(), "valid after its context ended")
			left := r.rdb.PTTL(ctx, "orders").Val()
			check.True(r, left > 0 && left <= 100*time.Millisecond, "ended %v before its key", left)
		})
	}
}

// Scenario 54.
func TestAFailedRenewalIsTriedAgainInTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		diary := &eventRecorder{}
		lease := r.lock(r.client(lock.Config{Observe: diary.write}).Mutex("orders", lock.Options{TTL: 3 * time.Second}))
		time.Sleep(900 * time.Millisecond)
		r.link.Refuse(errors.New("no route"))
		r.link.Cut()
		time.Sleep(1500 * time.Millisecond)
		r.link.Refuse(nil)
		time.Sleep(5 * time.Second)
		check.True(r, lease.Valid() && diary.count(lock.Renewed) != 0,
			"the lease did not survive an outage shorter than its TTL: %s", diary.story())
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 60: on the server the TTL may start as soon as the request is sent, however
// late the reply is.
func TestADeadlineCountsFromBeforeTheRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		warm := r.lock(c.Mutex("warm", lock.Options{}))
		r.must(warm.Extend(ctx, time.Minute))

		slowly := func(do func()) (latest time.Time) {
			latest = time.Now().Add(10 * time.Second)
			r.link.FreezeReplies()
			time.AfterFunc(time.Second, r.link.Thaw)
			do()
			took := time.Until(latest)
			check.Require(r, took <= 9*time.Second, "the reply was not late: %v left of 10 s", took)
			return latest
		}
		var lease *lock.Lease
		latest := slowly(func() {
			lease = r.lock(c.Mutex("orders", lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Off: true}}))
		})
		check.False(r, lease.Deadline().After(latest), "acquired until %v after the server may let go", lease.Deadline().Sub(latest))
		latest = slowly(func() { r.must(lease.Extend(ctx, 10*time.Second)) })
		check.False(r, lease.Deadline().After(latest), "extended until %v after the server may let go", lease.Deadline().Sub(latest))
	})
}

// Scenario 76: a deadline that has passed is final, whatever the server replies.
func TestALateReplyDoesNotReviveALease(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 2 * time.Second, Renew: lock.Renew{Off: true}}))
		r.must(lease.Extend(ctx, 2*time.Second)) // the server knows the script from now on
		r.link.FreezeReplies()
		extended := inBackground(func() error { return lease.Extend(ctx, time.Minute) })
		<-lease.Context().Done()
		ttl := r.rdb.PTTL(ctx, "orders").Val()
		check.Require(r, ttl >= 50*time.Second, "the server did not extend: PTTL %v", ttl)
		r.link.Thaw()
		check.ErrorIs(r, <-extended, lock.ErrLost, "extend ended with")
		check.False(r, lease.Valid(), "a lost lease came back to life")
		time.Sleep(time.Second)
		r.holds("orders", "") // the renewed key was undone
	})
}

// Scenario 64.
func TestTheBoundsOfRenewalEndTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		renew lock.Renew
		ends  time.Duration
	}{
		"count": {lock.Renew{Max: 4}, 4*time.Second + 3*time.Second},
		"time":  {lock.Renew{MaxHold: 5 * time.Second}, 5 * time.Second},
		"off":   {lock.Renew{Off: true}, 3 * time.Second},
	} {
		sub(t, name, inBubble, func(r *rig) {
			began := time.Now()
			lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 3 * time.Second, Renew: c.renew}))
			<-lease.Context().Done()
			check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "ended with")
			check.Between(r, time.Since(began), c.ends-300*time.Millisecond, c.ends, "ended after")
		})
	}
}

// Scenarios 20 and 91. When memory is full, no lock is acquired. Holds are renewed, extended, left and
// released, and a waiter sits it out.
func TestRenewalAndReleaseWorkWhenMemoryIsFull(t *testing.T) {
	onRedis(t, func(r *rig) {
		memory := func(most string) { r.must(r.rdb.ConfigSet(ctx, "maxmemory", most).Err()) }
		diary := &eventRecorder{}
		c, other := r.client(lock.Config{Observe: diary.write}), r.client(lock.Config{})
		o := lock.Options{TTL: time.Minute, Renew: lock.Renew{Every: 50 * time.Millisecond}}
		for kind, rival := range rivals(other, "orders") {
			l := everyKind(c, "orders", o)[kind]
			leases := []*lock.Lease{r.locked(l)}
			if slices.Contains(reenterable, kind) {
				leases = append(leases, r.locked(l))
			}
			refused := other.Stats().Events[lock.Contended]
			next := lockAsync(ctx, rival)
			r.until("the rival to wait", func() bool { return other.Stats().Events[lock.Contended] > refused })
			memory("1")
			if kind != "fair" { // its script begins with a write that is allowed
				check.ErrorIs(r, tried(kinds[kind](c, "more", o).TryLock(ctx)), lock.ErrUnavailable, "%s", kind)
			}
			if slices.Contains(reenterable, kind) {
				r.refused(rival)
			}
			r.renewed(diary, 1)
			r.must(leases[0].Extend(ctx, time.Hour))
			memory("0")
			if kind == "reader" { // the rival is told of the next writer
				check.AtLeast(r, r.rdb.PTTL(ctx, "orders-reader").Val(), 59*time.Minute, "the reader's time")
			} else {
				r.kept(kind, rival, time.Hour, time.Minute)
			}
			memory("1")
			for _, entry := range leases[1:] {
				r.must(entry.Unlock(ctx))
				check.True(r, leases[0].Valid() && !next.over(), "%s: the hold ended with one of its entries", kind)
			}
			r.must(leases[0].Unlock(ctx))
			time.Sleep(20 * time.Millisecond) // the rival tries in vain, unless it was handed the lock
			memory("0")
			r.must(r.won(next).Unlock(ctx))
			r.until("the end of all keys", func() bool { return r.keys() == 0 })
		}
	})
}

// Scenario 51: a failed Lock leaves no renewals.
func TestNothingIsRenewedAfterALockThatFailed(t *testing.T) {
	inBubble(t, func(r *rig) {
		diary := &eventRecorder{}
		c := r.client(lock.Config{Observe: diary.write})
		o := lock.Options{TTL: 10 * time.Second}
		r.must(r.rdb.Set(ctx, "held", "stranger", 0).Err())
		r.must(r.rdb.HSet(ctx, "hash", "field", "value").Err())
		for _, key := range []string{"held", "hash"} {
			check.True(r, within(time.Second, c.Mutex(key, o).Lock) != nil, "%s was locked", key)
		}
		r.link.FreezeReplies() // the next request is granted, but its reply is lost
		short := r.soon(time.Second)
		granted := make(chan bool, 1) // requested before the undo
		time.AfterFunc(time.Second/2, func() { granted <- r.rdb.Exists(ctx, "unheard").Val() == 1 })
		_, err := c.Mutex("unheard", o).Lock(short)
		check.Require(r, errors.Is(err, context.DeadlineExceeded), "got %v, want the deadline's error", err)
		check.Require(r, <-granted, "it was not granted")
		r.link.Thaw()
		time.Sleep(time.Minute)
		check.AtMost(r, diary.count(lock.Renewed), 0, "renewals")
		check.Equal(r, r.rdb.Exists(ctx, "unheard").Val(), 0, "the lock is still there")
	})
}

// Scenario 53: an attempt takes at most a sixth of the TTL, the next one follows soon,
// and they continue as long as the lease lasts.
func TestARenewalWithoutAReplyIsTriedAgainUntilTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		outage time.Duration
		lost   bool
	}{"a reply in time": {outage: 1600 * time.Millisecond}, "no reply": {outage: 5 * time.Second, lost: true}} {
		sub(t, name, inBubble, func(r *rig) {
			const ttl = 3 * time.Second
			lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: ttl}))
			r.must(lease.Extend(ctx, ttl)) // the server knows the script from now on
			time.Sleep(900 * time.Millisecond)
			began, deadline := time.Now(), lease.Deadline()
			r.link.FreezeReplies() // requests arrive, and each sets the TTL
			tries := r.extensions("orders", min(c.outage, deadline.Sub(began)))
			check.AtLeast(r, len(tries), 3, "tries within the validity")
			for i := 1; i < len(tries); i++ {
				check.AtMost(r, tries[i].Sub(tries[i-1]), ttl/6+ttl/20+10*time.Millisecond, "try %d came after the one before", i+1)
			}
			r.link.Thaw()
			time.Sleep(time.Until(deadline) + 10*time.Millisecond)
			check.True(r, lease.Valid() != c.lost, "valid is %v after the old deadline", !c.lost)
		})
	}
}

// extensions watches a key for length, and returns when its TTL was set.
func (r *rig) extensions(key string, length time.Duration) []time.Time {
	var times []time.Time
	until := time.Now().Add(length)
	for last := r.rdb.PTTL(ctx, key).Val(); time.Now().Before(until); {
		time.Sleep(time.Millisecond)
		left := r.rdb.PTTL(ctx, key).Val()
		if left > last {
			times = append(times, time.Now())
		}
		last = left
	}
	return times
}

// Scenarios 63, 89 and 90: another client shortens the TTL of the key, which may be gone before the next renewal.
func TestATimeThatWasShortenedIsPutRightOrTheLeaseIsLost(t *testing.T) {
	for left, survives := range map[time.Duration]bool{100 * time.Millisecond: false, 2 * time.Second: true} {
		sub(t, fmt.Sprint(left), inBubble, func(r *rig) {
			diary := &eventRecorder{}
			lease := r.lock(r.client(lock.Config{Observe: diary.write}).Mutex("orders", lock.Options{TTL: 3 * time.Second}))
			r.must(r.rdb.PExpire(ctx, "orders", left).Err())
			time.Sleep(1010 * time.Millisecond) // after the next renewal
			renewed := diary.count(lock.Renewed) > 0
			check.True(r, renewed == survives && lease.Valid() == survives, "renewed %v, valid %v; want both %v", renewed, lease.Valid(), survives)
			lost := diary.count(lock.Lost) > 0
			check.True(r, lost != survives, "lost is %v", lost)
			ttl := r.rdb.PTTL(ctx, "orders").Val()
			check.True(r, (!survives || ttl >= 2900*time.Millisecond) && (survives || ttl <= 0), "PTTL is %v", ttl)
		})
	}
}

// The interval between two renewals is longer than what is left after the Extend.
func TestAShortenedLeaseIsRenewedBeforeItEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 30 * time.Second}))
		r.must(lease.Extend(ctx, 5*time.Second))
		time.Sleep(time.Hour)
		r.holds("orders", lease.Token())
		r.must(lease.Unlock(ctx))
	})
}

// The server behind a connection stops without closing it, and its address leads to
// another one, as after a failover. The lease outlives it with a new connection.
func TestARenewalLeavesAConnectionThatDoesNotAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		stopped := netfault.New(r.rdb.Options().Dialer)
		dial := stopped.Dial
		via := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, DisableIdentity: true, ReadTimeout: time.Minute,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }})
		c := r.open(via, lock.Config{})
		defer via.Close()
		defer c.Close()
		defer stopped.Thaw()
		lease := r.lock(c.Mutex("orders", lock.Options{TTL: 12 * time.Second}))
		time.Sleep(time.Minute)
		dial = r.rdb.Options().Dialer
		stopped.Freeze()
		time.Sleep(10 * time.Minute)
		check.ErrorIs(r, context.Cause(lease.Context()), nil, "the lease ended")
		r.holds("orders", lease.Token())
	})
}
