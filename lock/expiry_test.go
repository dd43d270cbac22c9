package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// covered fails the test if a lease is valid for longer than its key exists.
func (r *rig) covered(lease *lock.Lease) {
	r.Helper()
	left := time.Until(lease.Deadline()) // before the server is asked
	ttl := r.rdb.PTTL(ctx, lease.Key()).Val()
	check.Require(r, !lease.Valid() || ttl >= left, "the lease of %q is valid for %v, its key lives for %v", lease.Key(), left, ttl)
}

// An extension beyond the TTL is not shortened by the next renewal or entry. If the
// replies are lost, the lease still does not outlive its key.
func TestAnExtendedLeaseLastsAsLongAsItsKey(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, o := r.client(lock.Config{}), lock.Options{TTL: time.Second}
		again := c.Reentrant("reentrant", o)
		side := c.RW("rw", o)
		for _, l := range []lock.Locker{c.Mutex("mutex", o), c.Fair("fair", o), again, side.Writer()} {
			lease := r.lock(l)
			r.must(lease.Extend(ctx, 30*time.Second))
			time.Sleep(5 * time.Second)
			check.AtLeast(r, time.Until(lease.Deadline()), 24*time.Second, "%s: left of 30 s after 5 s", lease.Key())
			if l == lock.Locker(again) || lease.Key() == "rw" {
				entry := r.locked(l)
				check.AtLeast(r, time.Until(lease.Deadline()), 24*time.Second, "%s: left of 25 s after another entry", lease.Key())
				r.must(entry.Unlock(ctx))
				r.link.FreezeReplies()
				_ = within(100*time.Millisecond, l.TryLock)
			}
			r.link.FreezeReplies()
			for range 400 { // beyond the next renewal
				if lease.Key() != "rw" { // the key is a hash with deadlines of its own
					r.covered(lease)
				}
				time.Sleep(70 * time.Millisecond)
			}
			r.link.Thaw()
			err := lease.Unlock(ctx)
			check.True(r, err == nil || !lease.Valid(), "%v", err)
		}
	})
}

// The holder may rely on 99 % of a TTL. The renewal after a long extension does not come
// after this time, and sets the TTL of the options again.
func TestALeaseIsRenewedAfterALongExtension(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		for _, longer := range []time.Duration{time.Minute, time.Hour, 30 * 24 * time.Hour} {
			lease := r.locked(c.Mutex("orders", lock.Options{TTL: 3 * time.Second}))
			r.must(lease.Extend(ctx, longer))
			time.Sleep(longer - longer/50)
			check.AtLeast(r, time.Until(lease.Deadline()), longer/200, "extended to %v, left of the last 2 %%", longer)
			time.Sleep(longer/100 + 10*time.Second)
			r.covered(lease)
			if left := time.Until(lease.Deadline()); !lease.Valid() || left > 3*time.Second {
				r.Fatalf("extended to %v, then renewed until %v from then: %v", longer, left, context.Cause(lease.Context()))
			}
			r.must(lease.Unlock(ctx))
		}
	})
}

// A lease may end long before its key: the reply to a longer Extend is lost, or a
// shorter Extend does not arrive or cannot be sent. The key is then released.
func TestALeaseThatEndsBeforeItsKeyReleasesIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		o := lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Off: true}}
		for key, breakNetwork := range map[string]func(){"longer": r.link.FreezeReplies, "shorter": r.link.Freeze, "not sent": func() {
			r.link.Refuse(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
			r.link.Cut()
			_, _ = c.Mutex("other", o).TryLock(ctx) // notices that the connection is broken
		}} {
			lease := r.lock(c.Mutex(key, o))
			r.must(lease.Extend(ctx, 20*time.Second)) // the server knows the script now
			ttl := time.Hour
			if key != "longer" {
				r.must(lease.Extend(ctx, time.Hour))
				ttl = time.Second
			}
			breakNetwork()
			check.Require(r, lease.Extend(r.soon(100*time.Millisecond), ttl) != nil, "the reply did not get lost")
			r.link.Refuse(errors.New("connection refused"))
			r.link.Cut()
			r.link.Thaw()
			<-lease.Context().Done()
			time.Sleep(time.Minute) // far longer than the TTL, which limits no release
			if ttl := r.rdb.PTTL(ctx, key).Val(); ttl < 50*time.Minute {
				r.Fatalf("%s: the key lives for %v, want about an hour", key, ttl)
			}
			r.link.Refuse(nil)
			time.Sleep(5 * time.Second)
			r.holds(key, "")
		}
	})
}

// A shorter Extend has an unknown outcome: its connection was closed. The server executes
// it after the next request, which came on another connection. The lease trusts a longer
// Extend only when the server has answered twice.
func TestAShorterExtendThatIsOvertakenDoesNotEndTheKeyBeforeTheLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		late(r.link, "orders", 0, 6*time.Second, 0, 2*time.Second) // the acquire, the shorter Extend, and the longer one twice
		c := r.client(lock.Config{})
		o := lock.Options{TTL: 20 * time.Second, Renew: lock.Renew{Off: true}}
		warm := r.locked(c.Mutex("warm", o))
		r.must(warm.Extend(ctx, o.TTL)) // the server knows the scripts
		lease := r.locked(c.Mutex("orders", o))
		check.Require(r, lease.Extend(ctx, 8*time.Second) != nil, "the connection was not closed")
		r.must(lease.Extend(ctx, time.Minute))
		for range 10 {
			r.covered(lease)
			time.Sleep(time.Second)
		}
		check.AtLeast(r, time.Until(lease.Deadline()), 45*time.Second, "left of 1 min after 12 s")
		r.must(lease.Unlock(ctx))
	})
}

func TestAnExtendedRedlockLastsAsLongAsItsCopies(t *testing.T) {
	nodesInBubble(t, 3, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 20 * time.Millisecond})
		r.warm(q)
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: time.Second}))
		r.must(lease.Extend(ctx, 30*time.Second))
		for _, l := range r.links {
			l.FreezeReplies()
		}
		for range 400 {
			left, kept := time.Until(lease.Deadline()), 0
			for _, rdb := range r.rdbs {
				if rdb.PTTL(ctx, "orders").Val() >= left {
					kept++
				}
			}
			check.Require(r, !lease.Valid() || kept >= 2, "the lease is valid for %v, and %d copies are", left, kept)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Late renewals and shorter Extends are in flight together. While the events of the
// first leases are processed, the renewals of the others wait behind their Extends.
func TestAnOlderRenewalDoesNotOverruleAShorterExtend(t *testing.T) {
	inBubble(t, func(r *rig) {
		var late sync.WaitGroup
		proceed := make(chan struct{})
		c := r.client(lock.Config{Observe: func(e lock.Event) {
			switch e.Kind {
			case lock.NotRenewed:
				late.Done()
			case lock.Renewed:
				<-proceed
			}
		}})
		leases := make([]*lock.Lease, 32) // some of them are in one batch
		for i := range leases {
			leases[i] = r.locked(c.Mutex(fmt.Sprint("orders", i), lock.Options{TTL: 3 * time.Second}))
		}
		r.must(leases[0].Extend(ctx, 3*time.Second)) // the server knows the script
		late.Add(len(leases))
		r.link.FreezeReplies()
		late.Wait()
		var all sync.WaitGroup
		for _, l := range leases {
			all.Go(func() {
				check.ErrorIs(r, l.Extend(ctx, time.Second), nil)
			})
		}
		synctest.Wait()
		r.link.Thaw()
		synctest.Wait()
		close(proceed)
		all.Wait()
		synctest.Wait()
		for _, l := range leases {
			left := time.Until(l.Deadline())
			check.Require(r, left <= time.Second, "valid for %v after Extend(1s)", left)
			r.covered(l)
		}
	})
}

// The same, but the replies of another lease's node are delayed.
func TestAFrozenNodeKeepsNothingBackFromLeasesOnOthers(t *testing.T) {
	testtier.Long(t, "a node of a cluster is frozen for seconds")
	r := onCluster(t, servertest.ClusterOptions{NodeTimeout: time.Minute})
	c := r.client(lock.Config{})
	o := lock.Options{TTL: 6 * time.Second, Renew: lock.Renew{Every: time.Second}}
	frozen := r.master("0")
	var there, elsewhere []*lock.Lease
	for i := 0; len(there) < 10 || len(elsewhere) < 10; i++ {
		lease := r.locked(c.Mutex(fmt.Sprint(i), o))
		if r.master(lease.Key()) == frozen {
			there = append(there, lease)
		} else {
			elsewhere = append(elsewhere, lease)
		}
	}
	node := r.nodes.Node(frozen)
	r.must(node.Freeze())
	t.Cleanup(func() { _ = node.Continue() })
	var all sync.WaitGroup
	for _, l := range elsewhere {
		all.Go(func() { r.extendWhileRenewed(l) })
	}
	all.Wait()
	r.must(node.Continue())
	for _, l := range there {
		_ = l.Unlock(ctx)
	}
}

// extendWhileRenewed shortens a lease right after its server has renewed it, and
// checks that it does not outlive its key.
func (r *clusterRig) extendWhileRenewed(l *lock.Lease) {
	was := r.rdb.PTTL(ctx, l.Key()).Val()
	r.until("a renewal", func() bool {
		ttl := r.rdb.PTTL(ctx, l.Key()).Val()
		renewed := ttl > was
		was = ttl
		return renewed
	})
	short := r.soon(10 * time.Second)
	began := time.Now()
	check.ErrorIs(r, l.Extend(short, 2*time.Second), nil)
	for time.Since(began) < 1500*time.Millisecond {
		deadline := l.Deadline()
		ttl := r.rdb.PTTL(ctx, l.Key()).Val()
		if left := time.Until(deadline); ttl < left {
			r.Errorf("%v after Extend(2s) the lease is valid for %v, its key lives for %v", time.Since(began), left, ttl)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	began = time.Now()
	check.ErrorIs(r, l.Unlock(short), nil)
	took := time.Since(began)
	check.False(r, tooLate(took, 500*time.Millisecond), "Unlock on a healthy node took %v", took)
}

// The round trip takes longer than a sixth of the TTL.
func TestALateReplyToARenewalCounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.link.Delay(func() time.Duration { return 100 * time.Millisecond })
		c := r.client(lock.Config{})
		for range 3 { // the handshake is not delayed
			r.must(pass(c.Mutex("warm", lock.Options{TTL: time.Minute})))
		}
		lease := r.lock(c.Mutex("orders", lock.Options{TTL: time.Second}))
		brief := r.lock(c.Mutex("brief", lock.Options{TTL: 900 * time.Millisecond}))
		for range 150 {
			time.Sleep(100 * time.Millisecond)
			check.Require(r, lease.Valid() && brief.Valid(), "lost: %v, %v", context.Cause(lease.Context()), context.Cause(brief.Context()))
		}
		r.must(lease.Unlock(ctx))
		r.must(brief.Unlock(ctx))
	})
}

// The event of another lease of the batch is processed slowly.
func TestUnlockEndsWithItsContextWhileARenewalIsTakenIn(t *testing.T) {
	inBubble(t, func(r *rig) {
		slow := make(chan string, 1)
		proceed := make(chan struct{})
		c := r.client(lock.Config{Observe: func(e lock.Event) {
			if e.Kind == lock.Renewed {
				select {
				case slow <- e.Key:
					<-proceed
				default:
				}
			}
		}})
		leases := make(map[string]*lock.Lease)
		for i := range 100 { // some of them are in one batch
			lease := r.lock(c.Mutex(fmt.Sprint(i), lock.Options{TTL: time.Minute}))
			leases[lease.Key()] = lease
		}
		delete(leases, <-slow)
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { close(proceed) })
		var all sync.WaitGroup
		for _, lease := range leases {
			all.Go(func() {
				_ = lease.Unlock(r.soon(100 * time.Millisecond))
			})
		}
		all.Wait()
		took := time.Since(began)
		check.True(r, took <= 100*time.Millisecond, "Unlock outlived its context by %v", took-100*time.Millisecond)
		<-proceed
		synctest.Wait()
	})
}
