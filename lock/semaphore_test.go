package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
		o := lock.Options{Fence: true}
		leases := append(r.acquired(c.Semaphore("orders", 3, o), 2), r.locked(other.Semaphore("orders", 3, o)))
		var held *lock.HeldError
		_, err := other.Semaphore("orders", 3, o).TryLock(ctx)
		if !errors.As(err, &held) || held.Token != leases[0].Token() || held.TTL <= 9*time.Second || held.TTL > 10*time.Second {
			r.Errorf("got %v, want the permit with the nearest deadline", err)
		}
		if holder, err := c.Semaphore("orders", 3, o).Holder(ctx); err != nil || holder.Token != leases[0].Token() {
			r.Errorf("the holder is %v, %v", holder, err)
		}
		for i, lease := range leases {
			if lease.Fence() != int64(i)+1 {
				r.Errorf("permit %d has the fence %d", i+1, lease.Fence())
			}
		}
		if members := r.rdb.ZRange(ctx, "orders", 0, -1).Val(); len(members) != 4 || members[3] != "limit:3" {
			r.Errorf("the key has %q", members)
		}
		r.must(leases[1].Unlock(ctx))
		leases[1] = r.locked(other.Semaphore("orders", 3, o))
		r.refused(c.Semaphore("orders", 3, o))
		r.unlockAll(leases...)
		if keys := r.rdb.Keys(ctx, "*").Val(); !slices.Equal(keys, []string{"{orders}:fence"}) {
			r.Errorf("the server has %q", keys)
		}
	})
}

// A raised limit wakes as many waiters as there are new permits: one each of three
// processes, and the others make no attempt. So do three releases, and the end of the
// leases of three dead holders.
func TestAsManyWaitersAreWokenAsThereArePermits(t *testing.T) {
	for name, free := range map[string]func(r *rig, holder *lock.Client, held []*lock.Lease){
		"raised limit": func(r *rig, holder *lock.Client, _ []*lock.Lease) {
			r.must(holder.Semaphore("orders", 1, lock.Options{}).SetLimit(ctx, 6))
		},
		"releases": func(r *rig, _ *lock.Client, held []*lock.Lease) { r.unlockAll(held...) },
		"close":    func(r *rig, holder *lock.Client, _ []*lock.Lease) { r.must(holder.Close()) },
		"expiries": func(*rig, *lock.Client, []*lock.Lease) {},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				o := lock.Options{TTL: 30 * time.Second}
				holder, _ := r.process("holder")
				fixed := o
				if name == "expiries" {
					fixed = lock.Options{TTL: 3 * time.Second, Renew: lock.Renew{Off: true}}
				}
				held := r.acquired(holder.Semaphore("orders", 3, fixed), 3)
				const processes = 30
				waits := make([]*await, processes)
				short, cancel := context.WithCancel(ctx)
				defer cancel()
				for i := range processes {
					c, _ := r.process(fmt.Sprint(i))
					waits[i] = lockAsync(short, c.Semaphore("orders", 3, o))
					r.registered(int64(i) + 1)
				}
				if name == "expiries" { // looks before them do not count
					time.Sleep(r.rdb.PTTL(ctx, "orders").Val() - 10*time.Millisecond)
				}
				before := r.acquires()
				free(r, holder, held)
				r.until("three holders", func() bool {
					n := 0
					for _, w := range waits {
						if w.over() {
							n++
						}
					}
					return n >= 3
				})
				if n := r.acquires() - before; n > 10 {
					r.Errorf("%d attempts for 3 permits and %d waiting processes", n, processes)
				}
				for i, w := range waits {
					if w.over() != (i < 3) {
						r.Errorf("process %d: it has a permit: %v", i, w.over())
					}
				}
				cancel()
				for i, w := range waits {
					if <-w.done; i < 3 {
						r.must(w.err)
						r.must(w.lease.Unlock(ctx))
					}
				}
				r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey).Val() == 0 })
			})
		})
	}
}
