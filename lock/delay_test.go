package lock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock"
)

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
