package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// acquired acquires n permits of a semaphore that must be free.
func (r *rig) acquired(s *lock.Semaphore, n int) []*lock.Lease {
	r.Helper()
	var leases []*lock.Lease
	for range n {
		leases = append(leases, r.locked(s))
	}
	return leases
}

// unlockAll releases leases.
func (r *rig) unlockAll(leases ...*lock.Lease) {
	r.Helper()
	for _, lease := range leases {
		r.must(lease.Unlock(ctx))
	}
}

// over returns how many calls have returned.
func over(calls []*await) (n int) {
	for _, call := range calls {
		if call.over() {
			n++
		}
	}
	return n
}

// unlockWon waits for calls, releases their leases, and returns the number of these.
func (r *rig) unlockWon(calls []*await) (n int) {
	r.Helper()
	for _, call := range calls {
		if <-call.done; call.err == nil {
			r.must(call.lease.Unlock(ctx))
			n++
		}
	}
	return n
}

// permits returns the number of permits that the server counts as in use.
func (r *rig) permits(key string) int64 {
	now := r.rdb.Time(ctx).Val().UnixMilli()
	return r.rdb.ZCount(ctx, key, fmt.Sprint("(", now), "(inf").Val()
}

// acquires returns how many times the server has counted the permits: in each acquire and
// in each release. The embedded server does not count.
func (r *rig) acquires() int {
	if r.fake {
		return 0
	}
	return r.calls("zcount")
}

func TestASemaphoreHasAsManyHoldersAsItsLimit(t *testing.T) {
	onBoth(t, func(r *rig) {
		c, other := r.client(lock.Config{}), r.client(lock.Config{})
		o := lock.Options{}
		leases := append(r.acquired(c.Semaphore("orders", 3, o), 2), r.locked(other.Semaphore("orders", 3, o)))
		held := r.heldBy(other.Semaphore("orders", 3, o))
		check.True(r, held.Token == leases[0].Token() && held.TTL > 9*time.Second && held.TTL <= 10*time.Second,
			"got %v, want the permit with the nearest deadline", held)
		if holder, err := c.Semaphore("orders", 3, o).Holder(ctx); err != nil || holder.Token != leases[0].Token() {
			r.Errorf("the holder is %v, %v", holder, err)
		}
		members := r.rdb.ZRange(ctx, "orders", 0, -1).Val()
		check.True(r, len(members) == 4 && members[3] == "locktop-limit:3", "the key has %q", members)
		r.must(leases[1].Unlock(ctx))
		leases[1] = r.locked(other.Semaphore("orders", 3, o))
		r.refused(c.Semaphore("orders", 3, o))
		r.unlockAll(leases...)
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 0, "keys left")
	})
}

// A raised or a cleared limit wakes as many waiters as there are new permits: one each of three
// processes, and the others make no attempt. So do three releases, and the end of the
// leases of three dead holders. No wake-up is lost: in Redisson a waiter could sleep on
// although a permit was free (redisson#1763, #5762).
func TestAsManyWaitersAreWokenAsThereArePermits(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(r *rig, holder *client, held []*lock.Lease){
		"raised limit": func(r *rig, holder *client, _ []*lock.Lease) {
			r.must(holder.Semaphore("orders", 1, lock.Options{}).SetLimit(ctx, 6))
		},
		"cleared limit": func(r *rig, holder *client, _ []*lock.Lease) {
			r.must(holder.Semaphore("orders", 6, lock.Options{}).SetLimit(ctx, 0))
		},
		"releases": func(r *rig, _ *client, held []*lock.Lease) { r.unlockAll(held...) },
		"close":    func(r *rig, holder *client, _ []*lock.Lease) { r.must(holder.Close()) },
		"expiries": func(*rig, *client, []*lock.Lease) {},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLong(t, "30 processes wait for the ends of leases", func(r *rig) {
				o := lock.Options{TTL: 30 * time.Second}
				holder, _ := r.process("holder")
				fixed := o
				const ttl = 3 * time.Second
				if name == "expiries" {
					fixed = lock.Options{TTL: ttl, Renew: lock.Renew{Off: true}}
				}
				limit := 3
				if name == "cleared limit" { // then that of the clients counts
					limit = 6
					r.must(holder.Semaphore("orders", limit, fixed).SetLimit(ctx, 3))
				}
				held := r.acquired(holder.Semaphore("orders", limit, fixed), 3)
				processes := testtier.Size(12, 30, 30)
				waits := make([]*await, processes)
				short, cancel := context.WithCancel(ctx)
				defer cancel()
				for i := range processes {
					c, _ := r.process(fmt.Sprint(i))
					waits[i] = lockAsync(short, c.Semaphore("orders", limit, o))
					r.registered(int64(i) + 1)
					for _, lease := range held {
						if name == "expiries" { // all processes register before them
							r.must(lease.Extend(ctx, ttl))
						}
					}
				}
				if name == "expiries" { // looks before them do not count
					time.Sleep(r.rdb.PTTL(ctx, "orders").Val() - 10*time.Millisecond)
				}
				before := r.acquires()
				free(r, holder, held)
				r.until("three holders", func() bool { return over(waits) >= 3 })
				check.AtMost(r, r.acquires()-before, 10, "attempts for 3 permits and %d waiting processes", processes)
				for i, w := range waits { // a look by another one may come first, except right after it has registered
					check.True(r, !r.fake || name == "expiries" || w.over() == (i < 3), "process %d: it has a permit: %v", i, w.over())
				}
				cancel()
				check.Equal(r, r.unlockWon(waits), 3, "processes have a permit")
				r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey).Val() == 0 })
			})
		})
	}
}

// A limit that cannot work is refused, and nothing is sent.
func TestASemaphoreRefusesArgumentsThatCannotWork(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.link.Refuse(errors.New("nothing must be sent"))
		c := r.client(lock.Config{})
		check.ErrorIs(r, tried(c.Client.Semaphore("orders", 0, lock.Options{})), lock.ErrArgument)
		check.ErrorIs(r, tried(c.Client.Semaphore("orders", -1, lock.Options{})), lock.ErrArgument)
		check.ErrorIs(r, c.Semaphore("orders", 1, lock.Options{}).SetLimit(ctx, -1), lock.ErrArgument)
	})
}

// A dead holder costs its own permit, until its own TTL has passed. The other holders
// keep theirs, and its permit never stays: in Redisson permits without a lease stay for
// ever (redisson#2045, #4462), and the keys never expire (redisson#4100, #6302).
func TestADeadHolderCostsOnePermitForItsOwnTTL(t *testing.T) {
	inBubble(t, func(r *rig) {
		alive, _ := r.process("alive")
		doomed, link := r.process("doomed")
		next, _ := r.process("next")
		kept := r.locked(alive.Semaphore("orders", 2, lock.Options{TTL: time.Minute}))
		lost := r.locked(doomed.Semaphore("orders", 2, lock.Options{TTL: 20 * time.Second}))
		link.Freeze()
		died := time.Now()
		lease := r.won(lockAsync(ctx, next.Semaphore("orders", 2, lock.Options{TTL: time.Minute})))
		check.Between(r, time.Since(died), 20*time.Second, 20*time.Second+5*time.Millisecond, "the permit of the dead holder was free after")
		check.True(r, !lost.Valid() && kept.Valid(), "the dead holder is valid: %v, the other one: %v", lost.Valid(), kept.Valid())
		r.refused(next.Semaphore("orders", 2, lock.Options{}))
		r.must(kept.Unlock(ctx))
		r.must(lease.Unlock(ctx))
		check.Equal(r, r.keys(), 0, "keys left")

		link.Thaw()
		for _, ttls := range [][2]time.Duration{{20 * time.Second, 40 * time.Second}, {40 * time.Second, 20 * time.Second}} {
			r.locked(doomed.Semaphore("stock", 2, fixed(ttls[0])))
			r.locked(doomed.Semaphore("stock", 2, fixed(ttls[1])))
			time.Sleep(21 * time.Second)
			check.Equal(r, r.permits("stock"), 1, "permits for %v that are left after 21 s", ttls)
			time.Sleep(20 * time.Second)
			check.Equal(r, r.keys(), 0, "keys left after the last permit")
		}
	})
}

// A waiter whose process has just got another permit also knows when a dead holder ends.
func TestTheNextWaiterOfAProcessKnowsTheNearestDeadline(t *testing.T) {
	inBubble(t, func(r *rig) {
		doomed, link := r.process("doomed")
		holder, _ := r.process("holder")
		c, _ := r.process("waiting")
		o := lock.Options{TTL: time.Minute}
		r.locked(doomed.Semaphore("orders", 2, lock.Options{TTL: 20 * time.Second}))
		link.Freeze()
		died := time.Now()
		kept := r.locked(holder.Semaphore("orders", 2, o))
		first := lockAsync(ctx, c.As("first").Semaphore("orders", 2, o))
		time.Sleep(time.Second)
		second := lockAsync(ctx, c.As("second").Semaphore("orders", 2, o))
		time.Sleep(18*time.Second + 500*time.Millisecond)
		r.must(kept.Unlock(ctx))
		leases := []*lock.Lease{r.won(first), r.won(second)}
		check.AtMost(r, time.Since(died), 20*time.Second+5*time.Millisecond, "the permit of the dead holder was free after")
		r.unlockAll(leases...)
	})
}

// Two holders die at the same time, or shortly after one another. The waiter that gets the first
// permit tells the other one of its process that the second is free, or when it is: nobody sends a
// message, and the process may be unable to register.
func TestTheNextWaiterOfAProcessKnowsWhenTheNextDeadHolderEnds(t *testing.T) {
	for _, registers := range []bool{true, false} {
		for _, apart := range []time.Duration{0, 100 * time.Millisecond} {
			sub(t, fmt.Sprintf("registers: %v, %v apart", registers, apart), inBubble, func(r *rig) {
				if !registers {
					r.must(r.rdb.Set(ctx, waitersKey, "not a zset", 0).Err())
				}
				c, _ := r.process("waiting")
				died := time.Now()
				for _, name := range []string{"doomed", "doomed, too"} {
					doomed, link := r.process(name)
					r.locked(doomed.Semaphore("orders", 2, lock.Options{TTL: 20 * time.Second}))
					link.Freeze()
					time.Sleep(apart)
				}
				o := lock.Options{TTL: time.Minute}
				first, second := lockAsync(ctx, c.As("first").Semaphore("orders", 2, o)), lockAsync(ctx, c.As("second").Semaphore("orders", 2, o))
				leases := []*lock.Lease{r.won(first), r.won(second)}
				check.AtMost(r, time.Since(died), 20*time.Second+apart+5*time.Millisecond, "the second permit was free after")
				r.unlockAll(leases...)
			})
		}
	}
}

// Dead permits count for nothing, are removed up to 100 at a time, and go with the key.
func TestDeadPermitsAreRemovedAHundredAtATime(t *testing.T) {
	onBoth(t, func(r *rig) {
		const dead = 1_050
		members := make([]redis.Z, dead)
		for i := range members {
			members[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprint("dead-", i)}
		}
		r.must(r.rdb.ZAdd(ctx, "orders", members...).Err())
		r.must(r.rdb.ZAdd(ctx, "orders", redis.Z{Score: math.Inf(1), Member: "locktop-limit:2"}).Err())
		s := r.client(lock.Config{}).Semaphore("orders", 20, lock.Options{})
		leases := r.acquired(s, 5)
		check.Equal(r, r.rdb.ZCard(ctx, "orders").Val(), dead-500+5+1, "members after 5 acquires")
		leases = append(leases, r.acquired(s, 15)...)
		r.refused(s)
		check.Equal(r, r.rdb.ZCard(ctx, "orders").Val(), 20+1, "members after 20 acquires")
		r.unlockAll(leases...)
		check.Equal(r, r.keys(), 0, "keys left")
	})
}

// A permit that the server has lost, or that has expired, is not created again by a
// renewal (redis-semaphore#175), also if others keep the key alive.
func TestALostPermitIsNotCreatedAgain(t *testing.T) {
	onBoth(t, func(r *rig) {
		for name, lose := range map[string]func(token string) error{
			"removed": func(token string) error { return r.rdb.ZRem(ctx, "orders", token).Err() },
			"expired": func(token string) error { return r.rdb.ZAdd(ctx, "orders", redis.Z{Score: 1, Member: token}).Err() },
			"deleted": func(string) error { return r.rdb.Del(ctx, "orders").Err() },
		} {
			s := r.client(lock.Config{}).Semaphore("orders", 2, lock.Options{TTL: 30 * time.Second, Renew: lock.Renew{Every: 50 * time.Millisecond}})
			leases := r.acquired(s, 2)
			r.must(lose(leases[0].Token()))
			check.ErrorIs(r, leases[0].Extend(ctx, time.Minute), lock.ErrLost, "%s: Extend returned", name)
			<-leases[0].Context().Done()
			check.ErrorIs(r, leases[0].Unlock(ctx), lock.ErrLost, "%s: Unlock returned", name)
			want := int64(1)
			if name == "deleted" {
				<-leases[1].Context().Done()
				want = 0
			} else {
				r.must(leases[1].Extend(ctx, time.Minute))
			}
			check.Equal(r, r.permits("orders"), want, "%s: the server has permits", name)
			if want > 0 {
				r.must(leases[1].Unlock(ctx))
			}
		}
	})
}

// The stored limit counts for all clients, over the life of the key. Lowering it takes
// no permit away and lets no waiter in before enough holders have left.
func TestTheStoredLimitCounts(t *testing.T) {
	onBoth(t, func(r *rig) {
		a, b := r.client(lock.Config{}), r.client(lock.Config{})
		s, other := a.Semaphore("orders", 4, lock.Options{}), b.Semaphore("orders", 9, lock.Options{})
		held := r.acquired(s, 4)
		r.must(other.SetLimit(ctx, 2))
		last := r.rdb.ZRange(ctx, "orders", -1, -1).Val()
		check.True(r, last[0] == "locktop-limit:2", "the key shows %q", last)
		waits := []*await{lockAsync(ctx, other)}
		r.registered(1) // first, so that it is not the process of the holders whom a release would wake
		waits = append(waits, lockAsync(ctx, s))
		r.registered(2)
		ear := r.rdb.PSubscribe(ctx, "{orders}:free:*")
		defer ear.Close()
		check.Must(ear.Receive(ctx))(r)
		for i, lease := range held {
			check.True(r, !waits[0].over() && !waits[1].over(), "a waiter got in after %d of 4 holders have left", i)
			check.True(r, lease.Valid(), "a permit was taken away")
			if i > 0 { // the release before has woken no process
				r.must(r.rdb.Publish(ctx, "{orders}:free:end", "end").Err())
				for m, err := ear.ReceiveMessage(ctx); m.Payload != "end"; m, err = ear.ReceiveMessage(ctx) {
					if r.must(err); m.Payload != "own" {
						r.Errorf("a release over the limit sent %q", m.Payload)
					}
				}
			}
			if i == 2 {
				break // 2 are left; this release makes one free
			}
			r.must(lease.Unlock(ctx))
		}
		r.must(held[2].Unlock(ctx))
		r.until("the first waiter", func() bool { return waits[0].over() != waits[1].over() })
		r.must(held[3].Unlock(ctx))
		r.unlockAll(r.won(waits[0]), r.won(waits[1]))
		if n := r.rdb.Exists(ctx, "orders").Val(); n != 0 || r.rdb.PTTL(ctx, "{orders}:limit").Val() != -1 {
			r.Errorf("the key exists: %v, the TTL of the limit is %v", n, r.rdb.PTTL(ctx, "{orders}:limit").Val())
		}
		r.acquired(other, 2)
		r.refused(other)
	})
}

// counts checks the limit and the number of permits in use.
func (r *rig) counts(s *lock.Semaphore, limit, inUse int) {
	r.Helper()
	gotInUse, gotLimit, err := s.Permits(ctx)
	r.must(err)
	check.True(r, gotLimit == limit && gotInUse == inUse, "%d of %d permits are in use, want %d of %d", gotInUse, gotLimit, inUse, limit)
}

// A raised limit reaches all waiters of one process, which is registered once.
func TestARaisedLimitReachesAllWaitersOfAProcess(t *testing.T) {
	for name, identity := range map[string]func(*client, int) *client{
		"goroutines": func(c *client, _ int) *client { return c },
		"identities": func(c *client, i int) *client { return c.As(fmt.Sprint("id", i)) },
	} {
		for _, own := range []bool{true, false} {
			sub(t, fmt.Sprint(name, ", by the same process: ", own), onBoth, func(r *rig) {
				holder, _ := r.process("holder")
				c, _ := r.process("waiting")
				lease := r.locked(holder.Semaphore("orders", 1, lock.Options{TTL: time.Minute}))
				short, cancel := context.WithCancel(ctx)
				waits := make([]*await, 10)
				for i := range waits {
					waits[i] = lockAsync(short, identity(c, i).Semaphore("orders", 1, lock.Options{TTL: time.Minute}))
				}
				want := 10
				if name == "goroutines" {
					want = 1
				}
				r.registered(1)
				r.until("the waiters", func() bool { return c.Stats().Waiting == 10 && int(c.Stats().Events[lock.Contended]) >= want })
				if r.fake {
					time.Sleep(100 * time.Millisecond)
				}
				by := holder
				if own {
					by = c
				}
				before, began := r.acquires(), time.Now()
				r.must(by.Semaphore("orders", 1, lock.Options{}).SetLimit(ctx, 5))
				r.until("four more holders", func() bool { return over(waits) == 4 })
				took := time.Since(began)
				check.True(r, !r.fake || took <= 10*time.Millisecond, "it took %v", took)
				check.AtMost(r, r.acquires()-before, 8, "attempts for 4 permits")
				cancel()
				r.unlockWon(waits)
				r.must(lease.Unlock(ctx))
				r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey, "orders").Val() == 0 })
			})
		}
	}
}

// When memory is full, a permit is handed over, and a new limit is refused.
func TestPermitsAreKeptAndReleasedWhenMemoryIsFull(t *testing.T) {
	onRedis(t, func(r *rig) {
		s := r.client(lock.Config{}).Semaphore("orders", 2, lock.Options{})
		leases := r.acquired(s, 2)
		token := "late~" + leases[0].Token()[len(leases[0].Token())-36:]
		r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: 1, Member: token}).Err())
		r.hear("{orders}:free:" + token[len(token)-12:])
		r.must(r.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
		check.ErrorIs(r, s.SetLimit(ctx, 5), lock.ErrUnavailable)
		r.must(leases[1].Unlock(ctx)) // hands a permit to the token
		check.True(r, r.rdb.ZScore(ctx, "orders", token).Val() != 0, "the permit was not handed over")
		r.must(leases[0].Unlock(ctx))
		r.until("the end of the reservation", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
	})
}

// A user with permission for the key alone uses its own limit, and waits for the message
// to all.
func TestWithoutPermissionForCompanionsTheOwnLimitCounts(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.user("~orders", "+@all")
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		r.must(r.client(lock.Config{}).Semaphore("orders", 1, lock.Options{}).SetLimit(ctx, 1))
		s := c.Semaphore("orders", 2, lock.Options{TTL: time.Minute})
		leases := r.acquired(s, 2)
		r.refused(s)
		for _, err := range []error{s.SetLimit(ctx, 3), s.SetLimit(ctx, 0)} {
			check.ErrorIs(r, err, lock.ErrNoPermission)
		}
		r.counts(s, 2, 2)
		next := lockAsync(ctx, c.As("next").Semaphore("orders", 2, lock.Options{}))
		r.until("a waiter that listens", func() bool { return len(r.rdb.PubSubChannels(ctx, "{orders}:free").Val()) == 1 })
		r.must(leases[0].Unlock(ctx))
		r.unlockAll(leases[1], r.won(next))

		s = c.Semaphore("orders", 2, fixed(300*time.Millisecond)) // two holders die
		r.acquired(s, 2)
		died := time.Now()
		first, second := lockAsync(ctx, c.As("first").Semaphore("orders", 2, lock.Options{})), lockAsync(ctx, c.As("second").Semaphore("orders", 2, lock.Options{}))
		after := r.won(first)
		leases = append(leases[:0], after, r.won(second))
		took := time.Since(died)
		check.False(r, tooLate(took, 2*time.Second), "two waiters of a process got the permits of dead holders after %v", took)
		r.unlockAll(leases...)
		check.DeepEqual(r, r.rdb.Keys(ctx, "*").Val(), []string{"{orders}:limit"}, "the server has")
	})
}

// Six processes wait for two permits. The first two of them get permits and die. The
// others were refused when two processes were before them, and learn that they are next
// only by asking: they must ask soon after the permits of that time end.
func TestTheNextWaitersFollowDeadOnes(t *testing.T) {
	inBubble(t, func(r *rig) {
		once := lock.Options{TTL: 2 * time.Second, Renew: lock.Renew{Off: true}}
		holder, _ := r.process("holder")
		held := r.acquired(holder.Semaphore("orders", 2, once), 2)
		var waiters []*await
		for i := range 6 {
			c, _ := r.process(fmt.Sprint("waiter-", i))
			waiters = append(waiters, lockAsync(ctx, c.Semaphore("orders", 2, once)))
			r.registered(int64(i) + 1)
		}
		r.unlockAll(held...)
		for _, dead := range waiters[:2] {
			r.won(dead) // it never unlocks
		}
		died := time.Now()
		for _, waiter := range waiters[2:] {
			lease := r.won(waiter)
			check.Between(r, time.Since(died), 1900*time.Millisecond, 2600*time.Millisecond, "the time from the death of the holders to an acquire")
			r.must(lease.Unlock(ctx))
		}
	})
}
