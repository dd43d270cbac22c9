package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/testtier"
	"locktop/lock"
)

// drift returns the allowance of a deadline.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Scenario 66.
func TestARedlockStandsOnAMajorityAndItsTimeCountsFromTheFirstRequest(t *testing.T) {
	nodesOnBothLong(t, 5, "it waits for the time-out of a stopped node", func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		r.freeze(0)
		began := time.Now()
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: 10 * time.Second}))
		took := time.Since(began)
		check.Require(r, took >= r.nodeTimeout(), "took %v: the frozen node was not asked", took)
		check.AtLeast(r, r.countOf([]int{1, 2, 3, 4}, "orders", lease.Token()), 3, "nodes with the token")
		latest := began.Add(10*time.Second - drift(10*time.Second) + took - r.nodeTimeout())
		d := lease.Deadline()
		check.False(r, d.After(latest), "the lease ends %v after the first request", d.Sub(began))
		r.must(lease.Unlock(ctx))
		r.resume(0)
		r.until("the release on all nodes", func() bool { return r.count("orders", "") == 5 })
	})
}

// countOf is count for some of the nodes.
func (r *nodes) countOf(which []int, key, value string) int {
	some := &nodes{}
	for _, i := range which {
		some.rdbs = append(some.rdbs, r.rdbs[i])
	}
	return some.count(key, value)
}

// Scenario 67, nodes that are down, and nodes where another client holds the lock.
func TestEverySubsetOfNodesDecidesAsItsSizeSays(t *testing.T) {
	for name, c := range map[string]struct {
		why       string
		take      func(r *nodes, i int, key string)
		stays     int // of each such node
		acquire   func(lock.Locker, context.Context) (*lock.Lease, error)
		want, not error
	}{
		"down": {"32 quorums connect to each of five servers", func(r *nodes, i int, _ string) { r.down(i) },
			0, lock.Locker.Lock, lock.ErrNoQuorum, lock.ErrHeld},
		"taken": {"it waits for the undos of 32 subsets",
			func(r *nodes, i int, key string) { r.must(r.rdbs[i].Set(ctx, key, "stray", time.Minute).Err()) },
			1, lock.Locker.TryLock, lock.ErrHeld, lock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			nodesOnBothLong(t, 5, c.why, func(r *nodes) {
				for mask := range uint(1 << 5) {
					key, out := fmt.Sprint("orders", mask), bits.OnesCount(mask)
					for i := range 5 {
						if mask>>i&1 == 1 {
							c.take(r, i, key)
						}
					}
					q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
					lease, err := c.acquire(q.Redlock(key, lock.Options{TTL: time.Hour}), ctx)
					switch {
					case out <= 2 && err != nil:
						r.Errorf("%05b %s: %v", mask, name, err)
					case out <= 2:
						r.must(lease.Unlock(ctx))
					case !errors.Is(err, c.want) || errors.Is(err, c.not):
						r.Errorf("%05b %s: got %v, want %v", mask, name, err, c.want)
					}
					r.until("only the strays to be left", func() bool {
						return r.count(key, "stray") == out*c.stays && r.count(key, "") == 5-out*c.stays
					})
					r.must(q.Close())
					r.up()
				}
			})
		})
	}
}

// If most nodes are down, the error is ErrNoQuorum, also if a token holds the lock on the
// others.
func TestAnOutageIsNotContention(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		r.must(r.rdbs[3].Set(ctx, "orders", "stray", 0).Err())
		r.down(0, 1, 2)
		_, err := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}).Redlock("orders", lock.Options{}).Lock(ctx)
		check.True(r, errors.Is(err, lock.ErrNoQuorum) && !errors.Is(err, lock.ErrHeld), "got %v, want ErrNoQuorum alone", err)
	})
}

// Scenario 68. Promise P5.
func TestTwoFrozenNodesCostAtMostThreeTimeoutsToLockAndOneToUnlock(t *testing.T) {
	nodesOnBothLong(t, 5, "it waits for the time limits of frozen nodes", func(r *nodes) {
		for _, pair := range [][]int{{0, 1}, {3, 4}, {0, 4}} {
			for _, warm := range []bool{true, false} {
				q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
				if warm {
					r.warm(q)
				}
				r.freeze(pair...)
				began := time.Now()
				lease := r.lock(q.Redlock("orders", lock.Options{TTL: time.Hour}))
				took := time.Since(began)
				check.False(r, r.tooLate(took, 3*r.nodeTimeout()), "%v frozen, warm %v: Lock took %v", pair, warm, took)
				began = time.Now()
				r.must(lease.Unlock(ctx))
				if took := time.Since(began); r.tooLate(took, r.nodeTimeout()) {
					r.Errorf("%v frozen, warm %v: Unlock took %v", pair, warm, took)
				}
				r.resume(pair...)
				r.until("nothing to be left", func() bool { return r.count("orders", "") == 5 })
				r.must(q.Close())
			}
		}
	})
}

func TestNodesThatFreezeWhileItIsHeldCostUnlockOneTimeout(t *testing.T) {
	nodesOnBothLong(t, 5, "it waits for the time limits of frozen nodes", func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		for _, c := range []struct {
			frozen, emptied []int
			said            string // "" = the lock is free
		}{
			{[]int{0, 1, 2}, nil, "no quorum: 2 of 5 nodes took part, and 3 are needed: "},
			{[]int{2}, []int{3, 4}, ""},
		} {
			lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Minute, Renew: lock.Renew{Off: true}}))
			for _, i := range c.emptied {
				r.must(r.rdbs[i].Del(ctx, "orders").Err())
			}
			r.freeze(c.frozen...)
			began := time.Now()
			err := lease.Unlock(ctx)
			took := time.Since(began)
			check.False(r, r.tooLate(took, 2*r.nodeTimeout()), "Unlock took %v", took)
			if c.said == "" {
				r.must(err)
				r.must(r.locked(q.As("b").Redlock("orders", lock.Options{})).Unlock(ctx))
			} else {
				check.True(r, errors.Is(err, lock.ErrNoQuorum) && strings.Contains(err.Error(), c.said), "got %v", err)
			}
			r.resume(c.frozen...)
			r.until("the release to go on", func() bool { return r.count("orders", "") == 5 })
		}
	})
}

// Scenario 69, killed nodes. Promise P5.
func TestWithThreeOfFiveKilledNoLockIsAcquiredOrLeftBehind(t *testing.T) {
	nodesOnRedis(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		m := q.Redlock("orders", lock.Options{TTL: time.Hour})
		r.kill(1, 3)
		lease, err := m.Lock(ctx) // two nodes that are down do not matter
		r.must(err)
		r.must(lease.Unlock(ctx))

		r.kill(4)
		for range 3 {
			began := time.Now()
			_, err = m.Lock(ctx)
			took := time.Since(began)
			check.False(r, tooLate(took, 3*r.nodeTimeout()), "it took %v to notice", took)
			check.Require(r, errors.Is(err, lock.ErrNoQuorum) && !errors.Is(err, lock.ErrHeld), "got %v, want ErrNoQuorum", err)
			check.True(r, strings.Contains(err.Error(), "of 5 nodes took part, and 3 are needed: ") && errors.Is(err, syscall.ECONNREFUSED),
				"the error does not tell of the nodes: %v", err)
			r.until("nothing to be left", func() bool { return r.count("orders", "") == 2 })
		}

		r.restart(1, 3, 4)
		short := r.soon(10 * time.Second)
		for lease, err = m.Lock(short); errors.Is(err, lock.ErrNoQuorum); lease, err = m.Lock(short) {
			time.Sleep(time.Millisecond) // connections need time to recover
		}
		r.must(err)
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 71: a request that a stopped node executes later is undone. Promise P3.
func TestARequestThatAStoppedNodeExecutesLaterIsUndone(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	nodesOnBothFirst(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		for i := range tries(10) {
			key := fmt.Sprint("orders", i)
			r.freeze(i % 5)
			r.must(pass(q.Redlock(key, lock.Options{TTL: time.Minute})))
			r.resume(i % 5)
			r.until("the orphan to go", func() bool { return r.count(key, "") == 5 })
		}
	})
}

// Scenario 70, also for one server: both take a grant in by the same code.
func TestAQuorumThatComesTooLateIsGivenBack(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 999 * time.Millisecond})
		r.warm(q)
		r.onLinks((*netfault.Network).FreezeReplies)
		failed := inBackground(func() error { return tried(q.Redlock("orders", lock.Options{TTL: time.Second}).Lock(ctx)) })
		time.Sleep(989 * time.Millisecond) // TTL − 1 % − 2 ms is 988 ms
		r.onLinks((*netfault.Network).Thaw)
		check.ErrorIs(r, <-failed, lock.ErrLost)
		time.Sleep(time.Millisecond)
		check.Equal(r, r.count("orders", ""), 5, "nodes without a copy")
	})
}

// Scenario 72. Promise P5.
func TestOneOfManyThatStartAtOnceGetsARedlock(t *testing.T) {
	starters, rounds := testtier.Size(10, 20, 20), testtier.Size(5, 50, 1000)
	nodesOnRedis(t, 5, func(r *nodes) {
		locks := make([]*quorum, starters)
		for i := range locks {
			locks[i] = r.quorum(lock.QuorumConfig{NodeTimeout: time.Second}) // the test is not about slow nodes
			r.warm(locks[i])
		}
		for round := range rounds {
			key := fmt.Sprint("round", round)
			var all sync.WaitGroup
			start, won := make(chan struct{}), make(chan *lock.Lease, starters)
			for _, q := range locks {
				all.Go(func() {
					<-start
					lease, err := q.Redlock(key, lock.Options{}).TryLock(ctx)
					switch {
					case err == nil:
						won <- lease
					case !errors.Is(err, lock.ErrHeld):
						r.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			check.Require(r, len(won) == 1, "round %d: %d winners", round, len(won))
			r.must((<-won).Unlock(ctx))
		}
	})
}

// Scenario 73. Without MinUptime a second client acquires the lock, as the
// documentation warns.
func TestANodeThatForgotDoesNotVoteUntilItIsOldEnough(t *testing.T) {
	t.Parallel()
	for name, guard := range map[string]time.Duration{"guarded": time.Hour, "unguarded": 0} {
		t.Run(name, func(t *testing.T) {
			if guard == 0 {
				testtier.Long(t, "it shows what the guard is for on five more servers")
			}
			nodesOnRedis(t, 5, func(r *nodes) {
				r.down(3, 4) // holder and nodes as in the textbook
				a := r.lock(r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}).Redlock("orders", lock.Options{TTL: time.Hour}))
				r.until("the refusals", func() bool { v := a.Votes(); return v[2].Held && v[3].Err != nil && v[4].Err != nil })
				r.up()
				r.kill(2)
				r.restart(2)

				b, err := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout(), MinUptime: guard}).Redlock("orders", lock.Options{TTL: time.Hour}).TryLock(ctx)
				check.True(r, guard <= 0 || errors.Is(err, lock.ErrNoQuorum), "got %v, want ErrNoQuorum: no node is an hour old", err)
				check.True(r, guard != 0 || err == nil && a.Valid() && b.Valid(), "want two holders, got %v", err)
				if guard > 0 {
					r.until("nothing of the second to be left", func() bool { return r.count("orders", a.Token())+r.count("orders", "") == 5 })
				}
			})
		})
	}
}

// Scenario 74.
func TestIfTheFirstNodeIsDownTheNextOneTakesItsPlace(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		r.freeze(0)
		m := q.Redlock("orders", lock.Options{})
		for i, most := range []time.Duration{r.nodeTimeout(), 0} { // known to be down the second time
			began := time.Now()
			lease := r.locked(m)
			check.AtMost(r, time.Since(began), most, "attempt %d took", i)
			r.must(lease.Unlock(ctx))
		}
	})
}

// Scenario 75: without a quorum there is no extension, and the rest is released.
func TestALeaseThatNoQuorumExtendsEndsAndIsGivenBack(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: 10 * time.Second}))
		deadline := lease.Deadline()
		r.freeze(0, 1, 2)

		check.ErrorIs(r, lease.Extend(ctx, 30*time.Second), lock.ErrNoQuorum)
		check.True(r, lease.Deadline().Equal(deadline), "the deadline moved by %v", lease.Deadline().Sub(deadline))
		<-lease.Context().Done()
		if late := time.Since(deadline); late != 0 || !errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
			r.Errorf("it ended %v after its deadline: %v", late, context.Cause(lease.Context()))
		}
		time.Sleep(time.Millisecond)
		check.Equal(r, r.countOf([]int{3, 4}, "orders", ""), 2, "released nodes of 2")
		r.resume(0, 1, 2)
		time.Sleep(time.Second)
		check.Equal(r, r.count("orders", ""), 5, "released nodes of 5 in the end")
	})
}

// Scenario 75: two frozen nodes of five do not affect a renewal.
func TestALeaseIsRenewedByTheNodesThatAnswer(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{})
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: 3 * time.Second}))
		r.freeze(0, 3)
		time.Sleep(2 * time.Minute)
		check.True(r, lease.Valid(), "lost: %v", context.Cause(lease.Context()))
		r.must(lease.Unlock(ctx))
	})
}

// Scenario 76.
func TestAnExtensionThatIsConfirmedTooLateRevivesNothing(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 999 * time.Millisecond})
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: time.Second, Renew: lock.Renew{Off: true}}))
		time.Sleep(500 * time.Millisecond)
		r.onLinks((*netfault.Network).FreezeReplies) // the nodes extend, but their replies are lost
		failed := inBackground(func() error { return lease.Extend(ctx, 10*time.Second) })
		<-lease.Context().Done()
		r.onLinks((*netfault.Network).Thaw)
		check.ErrorIs(r, <-failed, lock.ErrLost)
		check.False(r, lease.Valid(), "it came back to life")
		time.Sleep(time.Millisecond)
		check.Equal(r, r.count("orders", ""), 5, "nodes without a copy")
	})
}

func TestANodeThatLostItsCopyGetsItBack(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{})
		r.down(4)
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: 3 * time.Second}))
		r.up()
		time.Sleep(time.Minute)
		n := r.count("orders", lease.Token())
		check.Require(r, n == 5, "%d copies: the node that was down was left without", n)
		r.must(r.rdbs[0].FlushAll(ctx).Err())
		r.must(r.rdbs[1].FlushAll(ctx).Err())
		time.Sleep(2 * time.Second) // two renewals: one finds the loss, one repairs it
		check.Equal(r, r.count("orders", lease.Token()), 5, "copies after two nodes were emptied")
		r.must(lease.Unlock(ctx))
		time.Sleep(time.Second)
		check.Equal(r, r.count("orders", ""), 5, "a copy was put back after the release")
	})
}

// Scenarios 89 and 90, on nodes: a copy that was just restored does not count, because it was missing before.
func TestCopiesLostOneAfterAnotherAddUp(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{})
		lease := r.everywhere(q.Redlock("orders", lock.Options{Renew: lock.Renew{Off: true}}))
		for _, i := range []int{0, 1} {
			r.must(r.rdbs[i].Del(ctx, "orders").Err())
		}
		r.must(lease.Extend(ctx, 10*time.Second)) // finds two missing copies
		time.Sleep(time.Millisecond)
		for _, i := range []int{2, 3} {
			r.must(r.rdbs[i].Del(ctx, "orders").Err())
		}
		check.ErrorIs(r, lease.Extend(ctx, 10*time.Second), lock.ErrLost)
		time.Sleep(time.Millisecond)
		check.Equal(r, r.count("orders", ""), 5, "nodes without a copy")
	})
}

// Scenario 77.
func TestTheTTLOfARedlockIsThatOfAQuorum(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{})
		for i, c := range []struct {
			ttls []int // seconds; 0 = missing, −1 = no expiry
			want time.Duration
		}{
			{[]int{50, 10, 40, 20, 30}, 30 * time.Second}, // three of them last 30 s
			{[]int{0, 10, 40, 20, 0}, 10 * time.Second},
			{[]int{-1, 10, -1, 20, 0}, 20 * time.Second},
		} {
			key := fmt.Sprint("orders", i)
			for n, ttl := range c.ttls {
				if ttl != 0 {
					r.must(r.rdbs[n].Set(ctx, key, "them", time.Duration(max(ttl, 0))*time.Second).Err())
				}
			}
			held := r.heldBy(q.Redlock(key, lock.Options{}))
			check.Equal(r, held.Token, "them", "held by")
			// All nodes were asked, or enough: the result is never more than the
			// truth.
			check.True(r, held.TTL <= c.want-drift(c.want) && held.TTL > 0, "%v: %v left, want %v less drift", c.ttls, held.TTL, c.want)
		}
	})
}

// As TestAnAcquireThatItsUndoOvertakesIsUndone, on a node.
func TestACopyThatIsCreatedAfterTheFirstReleaseIsReleased(t *testing.T) {
	nodesInBubble(t, 1, func(r *nodes) {
		readTimeout := r.via[0].Options().ReadTimeout
		late(r.links[0], "orders", readTimeout+time.Millisecond)
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 2 * readTimeout})
		r.warm(q)
		_, err := q.Redlock("orders", lock.Options{TTL: time.Minute}).TryLock(ctx)
		check.Require(r, errors.Is(err, lock.ErrNoQuorum), "got %v, want ErrNoQuorum", err)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		check.Require(r, r.count("orders", "") == 0, "the acquire has not arrived")
		time.Sleep(time.Second)
		check.Equal(r, r.count("orders", ""), 1, "the copy is left")
	})
}

// The release is repeated for as long as the copy may exist: an hour, and not only the TTL
// of the options.
func TestAnExtendedCopyIsReleasedHoweverLateTheNodeIsBack(t *testing.T) {
	nodesInBubble(t, 1, func(r *nodes) {
		lease := r.lock(r.quorum(lock.QuorumConfig{}).Redlock("orders", lock.Options{TTL: 10 * time.Second}))
		r.must(lease.Extend(ctx, time.Hour))
		r.down(0)
		check.Require(r, lease.Unlock(ctx) != nil, "a release that did not reach the node succeeded")
		time.Sleep(time.Minute)
		r.up()
		time.Sleep(5 * time.Second)
		check.Equal(r, r.count("orders", ""), 1, "the copy is left")
	})
}

// Scenario 78.
func TestNodesMustBeDifferentServers(t *testing.T) {
	nodesOnRedis(t, 3, func(r *nodes) {
		check.ErrorIs(r, tried(lock.NewQuorum(append(r.via, r.via[0]), lock.QuorumConfig{})), lock.ErrArgument, "one address twice")
		check.ErrorIs(r, tried(lock.NewQuorum(nil, lock.QuorumConfig{})), lock.ErrArgument, "no nodes")
		slow := r.quorum(lock.QuorumConfig{NodeTimeout: time.Second})
		check.ErrorIs(r, tried(slow.Quorum.Redlock("orders", lock.Options{TTL: time.Second})), lock.ErrArgument, "a node time-out as long as the TTL")
		alias := redis.NewClient(&redis.Options{Addr: "localhost" + r.via[1].Options().Addr[len("127.0.0.1"):]})
		defer alias.Close()
		q := &quorum{check.Must(lock.NewQuorum(append(r.via, alias), lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}))(r)}
		defer q.Close()
		check.ErrorIs(r, tried(q.Redlock("orders", lock.Options{TTL: time.Hour}).TryLock(ctx)), lock.ErrArgument, "two addresses of one server")
		r.until("nothing to be left", func() bool { return r.count("orders", "") == 3 })
	})
}

// The second address of a server can be reached again when the votes of two nodes are needed.
func TestTheSecondAddressOfANodeDoesNotVote(t *testing.T) {
	nodesOnRedis(t, 2, func(r *nodes) {
		r.add("localhost"+r.via[1].Options().Addr[len("127.0.0.1"):], redis.NewDialer(&redis.Options{}))
		orders := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}).Redlock("orders", lock.Options{TTL: time.Hour})
		r.down(2)
		r.must(r.locked(orders).Unlock(ctx))
		r.up()
		r.down(0)
		check.ErrorIs(r, tried(orders.TryLock(ctx)), lock.ErrArgument, "with the votes of one server")
		r.until("nothing to be left", func() bool { return r.count("orders", "") == 3 })
	})
}

// Scenario 78: any number of nodes works, and survives the loss of fewer than half.
func TestAnyNumberOfNodesWorks(t *testing.T) {
	for n := 1; n <= 6; n++ {
		nodesInBubble(t, n, func(r *nodes) {
			spare := (n - 1) / 2
			for down := range n + 1 {
				q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
				for i := range down {
					r.down(i)
				}
				lease, err := q.Redlock("orders", lock.Options{}).Lock(ctx)
				if down <= spare {
					r.must(err)
					r.must(lease.Unlock(ctx))
				} else if !errors.Is(err, lock.ErrNoQuorum) {
					r.Errorf("%d of %d down: got %v, want ErrNoQuorum", down, n, err)
				}
				r.must(q.Close())
				r.up()
			}
		})
	}
}

// Scenario 79: a clock that jumps forward by more than the TTL frees the key, as
// PEXPIRE does here. A second client acquires the lock only if the majority has
// jumped; the documentation warns of this.
func TestClocksThatJumpMatterOnceAHolderCannotSpareThem(t *testing.T) {
	for _, copies := range []int{3, 5} {
		for jumps := range copies + 1 {
			nodesInBubble(t, 5, func(r *nodes) {
				for _, rdb := range r.rdbs[copies:] {
					r.must(rdb.Set(ctx, "orders", "stray", 0).Err())
				}
				a := r.lock(r.quorum(lock.QuorumConfig{}).Redlock("orders", lock.Options{Renew: lock.Renew{Off: true}}))
				r.until("the copies and the refusals", func() bool {
					return votes(a, func(v lock.Vote) bool { return v.Held }) == copies &&
						votes(a, func(v lock.Vote) bool { return v.Err != nil }) == 5-copies
				})
				for _, rdb := range r.rdbs[copies:] {
					r.must(rdb.Del(ctx, "orders").Err())
				}
				for _, rdb := range r.rdbs[:jumps] {
					r.must(rdb.PExpire(ctx, "orders", 0).Err())
				}
				_, err := r.quorum(lock.QuorumConfig{}).Redlock("orders", lock.Options{}).TryLock(ctx)
				check.True(r, (err == nil) == ((5-copies+jumps) >= 3), "%d copies, %d jumps: the second one got %v", copies, jumps, err)
			})
		}
	}
}

// votes counts the nodes for which is returns true.
func votes(l *lock.Lease, is func(lock.Vote) bool) int {
	n := 0
	for _, v := range l.Votes() {
		if is(v) {
			n++
		}
	}
	return n
}

// Scenario 80: fences increase with any quorum. Promise P6.
func TestFencesRiseOverChangingQuorums(t *testing.T) {
	const nodeCount = 5
	rounds := testtier.Size(25, 500, 500)
	nodesOnRedis(t, nodeCount, func(r *nodes) {
		var locks []lock.Locker // each asks another node first
		for first := range nodeCount {
			turned := slices.Concat(r.via[first:], r.via[:first])
			q := &quorum{check.Must(lock.NewQuorum(turned, lock.QuorumConfig{NodeTimeout: 10 * time.Second}))(r)}
			defer q.Close()
			locks = append(locks, q.Redlock("orders", lock.Options{TTL: time.Minute, Fence: true}))
		}
		var last int64
		for i := range rounds {
			first := rand.IntN(nodeCount)
			for _, step := range []int{1, 3} { // two other nodes hold another lock and do not count this time
				r.must(r.rdbs[(first+step+i%2)%nodeCount].Set(ctx, "orders", "stray", time.Minute).Err())
			}
			lease := r.lock(locks[first])
			check.Require(r, fenceOf(lease) > last, "round %d: fence %d after %d", i, fenceOf(lease), last)
			last = fenceOf(lease)
			r.must(lease.Unlock(ctx))
			for _, step := range []int{1, 3} {
				r.must(r.rdbs[(first+step+i%2)%nodeCount].Del(ctx, "orders").Err())
			}
		}
	})
}

// The other nodes count on from 5. Without a quorum of counters at 11 the next holder could
// get a smaller fence than 11.
func TestARedlockIsNotHeldBeforeAQuorumKnowsItsFence(t *testing.T) {
	nodesInBubble(t, 3, func(r *nodes) {
		raise := "\r\n$1\r\n1\r\n$14\r\n{orders}:fence\r\n" // one key; an acquire has two
		for i, count := range []int{10, 5, 5} {
			late(r.links[i], raise, time.Second)
			r.must(r.rdbs[i].Set(ctx, "{orders}:fence", count, 0).Err())
		}
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		fenced := q.Redlock("orders", lock.Options{Fence: true})
		if lease, err := fenced.TryLock(ctx); !errors.Is(err, lock.ErrNoQuorum) {
			r.Fatalf("got %v with the fence %d, want ErrNoQuorum", err, fenceOf(lease))
		}
		time.Sleep(5 * time.Second)
		lease := r.locked(fenced)
		check.AtLeast(r, fenceOf(lease), 12, "fence after 11")
		r.must(lease.Unlock(ctx))
	})
}

// A late write of a fence does not decrease a node's counter.
func TestAFenceThatIsWrittenBackLateLowersNothing(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: time.Minute})
		r.warm(q)
		for _, i := range []int{0, 1, 2} {
			r.must(r.rdbs[i].Set(ctx, "{orders}:fence", 10, 0).Err())
		}
		r.must(r.rdbs[3].Set(ctx, "{orders}:fence", 5, 0).Err())
		r.freeze(4)
		lease := r.lock(q.Redlock("orders", lock.Options{TTL: time.Hour, Fence: true}))
		check.Require(r, fenceOf(lease) == 11, "fence %d, want 11", fenceOf(lease))
		r.must(r.rdbs[4].Set(ctx, "{orders}:fence", 50, 0).Err()) // by later holders
		r.resume(4)
		time.Sleep(time.Millisecond)
		// A node that is asked only after the others have answered counts up once more.
		for i, least := range []int{11, 11, 11, 11, 51} {
			got, err := r.rdbs[i].Get(ctx, "{orders}:fence").Int()
			check.True(r, got >= least, "node %d counts on from %d, %v; want at least %d", i, got, err, least)
		}
	})
}

// Scenario 82, on nodes. Promise P3.
func TestARedlockThatWasGivenUpLeavesNothingBehind(t *testing.T) {
	nodesOnBothFirst(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: time.Second})
		r.warm(q)
		for i := range tries(20) {
			key := fmt.Sprint("orders", i)
			r.onLinks((*netfault.Network).FreezeReplies)
			began := time.Now()
			err := within(20*time.Millisecond, q.Redlock(key, lock.Options{TTL: time.Minute}).Lock)
			check.Require(r, errors.Is(err, context.DeadlineExceeded), "got %v, want the deadline's error", err)
			took := time.Since(began)
			check.True(r, r.children != nil || took <= 20*time.Millisecond, "gave up after %v", took)
			if i%2 == 1 { // the client does not learn whether SET was executed
				r.onLinks((*netfault.Network).Cut)
			}
			r.onLinks((*netfault.Network).Thaw)
			r.until("the undo", func() bool { return r.count(key, "") == 5 })
			r.until("new connections", func() bool { return pass(q.Redlock("warm", lock.Options{})) == nil })
		}
	})
}

// A script that a node did not know is not sent again after the release.
func TestNothingIsPutBackAfterTheRelease(t *testing.T) {
	nodesInBubble(t, 3, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 30 * time.Second})
		for range 50 {
			lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Minute, Renew: lock.Renew{Off: true}}))
			r.must(r.rdbs[2].FlushAll(ctx).Err())
			r.must(lease.Extend(ctx, time.Minute))
			time.Sleep(time.Millisecond) // the third node has reported that its copy is gone
			r.must(r.rdbs[2].ScriptFlush(ctx).Err())
			r.links[2].FreezeReplies()
			r.must(lease.Extend(ctx, time.Minute)) // restores the copy, but the script is not known
			r.must(lease.Unlock(ctx))
			r.links[2].Thaw()
			time.Sleep(time.Millisecond)
			check.Require(r, r.count("orders", "") == 3, "a copy stands after the release")
		}
	})
}

// The message may arrive before the other nodes have executed their releases. They
// then refuse the waiter, which retries. Usually it acquires the lock at once.
func TestAReleaseOnTheFirstNodeWakesAWaiter(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		holder, waiter := r.quorum(lock.QuorumConfig{}), r.quorum(lock.QuorumConfig{NodeTimeout: 9 * time.Second})
		for name, holder := range map[string]*quorum{"of another process": holder, "of the same process": waiter.As("holder")} {
			var waits []time.Duration
			for len(waits) < 10 && !slices.Contains(waits, 0) {
				waits = append(waits, r.handOver(holder, waiter))
			}
			check.True(r, slices.Contains(waits, 0), "after the release %s the waiter got in after %v, each time by chance", name, waits)
		}
	})
}

// A release on the first node wakes one process, however many wait. A waiter that gives
// up is not registered any more.
func TestAReleaseOfARedlockWakesOneProcess(t *testing.T) {
	nodesInBubble(t, 3, func(r *nodes) {
		holder := r.quorum(lock.QuorumConfig{})
		lease := r.lock(holder.Redlock("orders", lock.Options{TTL: time.Hour}))
		const processes = 20
		short, giveUp := context.WithCancel(ctx)
		left := lockAsync(short, r.quorum(lock.QuorumConfig{NodeTimeout: time.Minute}).Redlock("orders", lock.Options{TTL: time.Hour}))
		var all sync.WaitGroup
		for range processes {
			q := r.quorum(lock.QuorumConfig{NodeTimeout: time.Minute})
			all.Go(func() { r.must(pass(q.Redlock("orders", lock.Options{TTL: time.Hour}))) })
		}
		r.registered(processes + 1)
		giveUp()
		<-left.done
		r.registered(processes)
		before := r.commands(0)
		r.must(lease.Unlock(ctx))
		all.Wait()
		// About 7: a woken process that comes before the releases on the other nodes fails
		// and looks again. If all processes are woken, about 60.
		check.AtMost(r, float64(r.commands(0)-before)/processes, 15, "requests to the first node per hand-off")
		r.registered(0)
	})
}

// A process that has had the lock registers behind the processes that wait.
func TestAProcessThatComesBackToARedlockIsTheLast(t *testing.T) {
	nodesInBubble(t, 3, func(r *nodes) {
		o := lock.Options{TTL: time.Hour}
		held := r.lock(r.quorum(lock.QuorumConfig{}).Redlock("orders", o))
		quorums := []*quorum{r.quorum(lock.QuorumConfig{Config: lock.Config{Owner: "first"}}), r.quorum(lock.QuorumConfig{Config: lock.Config{Owner: "second"}})}
		register := func(i int, processes int64) *await {
			call := lockAsync(ctx, quorums[i].Redlock("orders", o))
			r.registered(processes)
			time.Sleep(10 * time.Millisecond) // the next one gets a larger ticket
			return call
		}
		first := register(0, 1)
		r.must(held.Unlock(ctx))
		again := r.won(first)
		waiting := []*await{register(1, 1), register(0, 2)}
		all := r.rdbs[0].ZRange(ctx, waitersKey, 0, -1).Val()
		check.True(r, strings.HasPrefix(all[1], "first~"), "the first process has had the lock, and the order is %s", all)
		r.must(again.Unlock(ctx))
		for _, call := range waiting {
			go func() {
				if <-call.done; call.err == nil {
					_ = call.lease.Unlock(ctx)
				}
			}()
		}
		<-waiting[0].done
		<-waiting[1].done
		r.registered(0)
	})
}

// The first node fails while several processes are registered there.
func TestRegisteredProcessesGetInWithoutTheFirstNode(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		lease := r.lock(r.quorum(lock.QuorumConfig{}).Redlock("orders", lock.Options{TTL: time.Hour}))
		const processes = 10
		var all sync.WaitGroup
		for range processes {
			q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
			all.Go(func() { r.must(pass(q.Redlock("orders", lock.Options{}))) })
		}
		r.registered(processes)
		time.Sleep(10 * time.Second) // each knows its place
		before := r.commands(0)
		time.Sleep(100 * r.nodeTimeout())
		// About 800 requests: two processes look every 3 node time-outs on average, the
		// others every 15. If all look as often as these two, about 2,100.
		check.AtMost(r, r.commands(0)-before, 1300, "requests of %d processes in 100 node time-outs", processes)
		r.freeze(0)
		began := time.Now()
		r.must(lease.Unlock(ctx))
		all.Wait()
		took := time.Since(began)
		check.True(r, took <= 60*r.nodeTimeout(), "the waiters got in after %v, want less than 60 node time-outs of %v", took, r.nodeTimeout())
	})
}

// handOver returns the time from a release until a waiter has the lock.
func (r *nodes) handOver(holder, waiter *quorum) time.Duration {
	r.Helper()
	lease := r.lock(holder.Redlock("orders", lock.Options{}))
	won := lockAsync(ctx, waiter.Redlock("orders", lock.Options{}))
	time.Sleep(time.Second)
	began := time.Now()
	r.must(lease.Unlock(ctx))
	next := r.won(won)
	took := time.Since(began)
	r.must(next.Unlock(ctx))
	return took
}

// With a stray copy on the first node the waiters must not wake each other.
func TestFailedAttemptsWakeNobody(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Hour}))
		r.must(r.rdbs[0].Del(ctx, "orders").Err()) // now the first node grants the lock, and the others refuse it
		short := r.soon(10 * time.Second)
		var tries int
		waiter := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		before := r.commands(1)
		_, err := waiter.Redlock("orders", lock.Options{}).Lock(short)
		tries = r.commands(1) - before
		check.True(r, errors.Is(err, lock.ErrHeld) && errors.Is(err, context.DeadlineExceeded), "got %v", err)
		check.AtMost(r, tries, 200, "requests in 10 s") // usually about 80; waiters that wake each other make many more
		r.must(lease.Unlock(ctx))
	})
}

// registered waits until n processes wait for the lock orders on the first node.
func (r *nodes) registered(n int64) {
	r.Helper()
	r.until(fmt.Sprintf("%d registered processes", n), func() bool { return r.rdbs[0].ZCard(ctx, waitersKey).Val() == n })
}

// commands returns how many commands a node has received.
func (r *nodes) commands(node int) int {
	info, err := r.rdbs[node].InfoMap(ctx, "stats").Result()
	r.must(err)
	var n int
	_, err = fmt.Sscan(info["Stats"]["total_commands_processed"], &n)
	r.must(err)
	return n
}

func TestALeaseHasTheVoteOfEveryNode(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		r.down(1)
		r.freeze(2)
		r.must(r.rdbs[3].Set(ctx, "orders", "stray", 0).Err())
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		_, err := q.Redlock("orders", lock.Options{}).TryLock(ctx)
		check.ErrorIs(r, err, lock.ErrHeld)
		r.must(r.rdbs[3].Del(ctx, "orders").Err())
		r.up()
		r.resume(2)
		time.Sleep(time.Second)
		r.freeze(2)
		r.must(r.rdbs[4].Set(ctx, "orders", "stray", 0).Err())
		lease := r.lock(q.Redlock("orders", lock.Options{}))
		time.Sleep(r.nodeTimeout() + time.Millisecond) // late replies arrive
		votes := lease.Votes()
		for i, want := range []struct {
			held bool
			err  error
		}{{true, nil}, {true, nil}, {false, context.DeadlineExceeded}, {true, nil}, {false, lock.ErrHeld}} {
			if v := votes[i]; v.Held != want.held || !errors.Is(v.Err, want.err) || v.Addr != fmt.Sprintf("127.0.0.1:%d", i+1) {
				r.Errorf("node %d: %+v, want %+v", i, v, want)
			}
		}
		r.must(lease.Unlock(ctx))
	})
}

func TestCloseReleasesOnTheNodesThatAnswer(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Minute}))
		r.freeze(0, 1)
		r.must(q.Close())
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrClosed, "cause")
		check.Equal(r, r.countOf([]int{2, 3, 4}, "orders", ""), 3, "released nodes of 3")
		check.ErrorIs(r, tried(q.Redlock("orders", lock.Options{}).TryLock(ctx)), lock.ErrClosed)
		r.resume(0, 1)
	})
}

func TestAFreeRedlockTakesTwoCommandsANode(t *testing.T) {
	nodesOnRedis(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		r.resetStats()
		r.must(pass(q.Redlock("orders", lock.Options{})))
		r.must(q.Close()) // waits for all releases
		for i := range r.rdbs {
			for command, want := range map[string]string{"set": "calls=1,", "evalsha": "calls=1,"} {
				check.Contains(r, r.stats(i), "cmdstat_"+command+":"+want, "node %d: %s", i, command)
			}
		}
	})
}

// For a held lock only the first node is asked, and once more for the holder.
func TestARefusedRedlockNamesTheHolder(t *testing.T) {
	nodesOnRedis(t, 3, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		lease := r.everywhere(q.Redlock("orders", lock.Options{}))
		r.resetStats()
		held := r.heldBy(q.As("other").Redlock("orders", lock.Options{}))
		check.True(r, held.Token == lease.Token() && held.TTL > 0, "got %v, want the holder", held)
		for i, want := range []string{"cmdstat_set:calls=2,", "cmdstat_evalsha:calls=1,", "cmdstat_evalsha:calls=1,"} {
			r.until(want, func() bool { return strings.Contains(r.stats(i), want) })
		}
		for i := range r.rdbs[1:] {
			stats := r.stats(i + 1)
			check.False(r, strings.Contains(stats, "cmdstat_set"), "node %d was asked for the lock:\n%s", i+1, stats)
		}
	})
}

// resetStats resets the command statistics of every node.
func (r *nodes) resetStats() {
	r.Helper()
	for _, rdb := range r.rdbs {
		r.must(rdb.ConfigResetStat(ctx).Err())
	}
}

// stats returns the commands that a node has executed.
func (r *nodes) stats(node int) string {
	r.Helper()
	return check.Must(r.rdbs[node].Info(ctx, "commandstats").Result())(r)
}

// A free lock is acquired without a script, but released by one.
func TestANodeThatRunsNoScriptsIsGivenNoCopy(t *testing.T) {
	nodesOnRedis(t, 3, func(r *nodes) {
		r.must(r.rdbs[2].Do(ctx, "acl", "setuser", "default", "-@scripting").Err())
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		for range 3 {
			lease := r.lock(q.Redlock("orders", lock.Options{}))
			r.until("the third node's refusal", func() bool { return errors.Is(lease.Votes()[2].Err, lock.ErrNoPermission) })
			check.Equal(r, r.count("orders", lease.Token()), 2, "nodes have a copy")
			r.must(lease.Unlock(ctx))
		}
	})
}

// Unlock does not wait for nodes that are slower than a quorum, but Close does.
func TestCloseWaitsForTheReleasesOnSlowNodes(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 20 * time.Millisecond})
		lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Minute}))
		r.freeze(3, 4)
		r.must(lease.Unlock(ctx))
		time.AfterFunc(100*time.Millisecond, func() { r.resume(3, 4) }) // their time-out has passed long ago
		r.must(q.Close())
		check.Equal(r, r.count("orders", ""), 5, "released nodes of 5 when Close returned")
	})
}

// Nodes that never granted the lock count when the others are asked to release it.
func TestAReleaseThatFindsTooFewCopiesReturnsErrLost(t *testing.T) {
	nodesOnBoth(t, 5, func(r *nodes) {
		for _, rdb := range r.rdbs[3:] {
			r.must(rdb.Set(ctx, "orders", "stray", time.Hour).Err())
		}
		lease := r.lock(r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}).Redlock("orders", lock.Options{TTL: time.Hour}))
		r.until("the refusals", func() bool {
			votes := lease.Votes()
			return errors.Is(votes[3].Err, lock.ErrHeld) && errors.Is(votes[4].Err, lock.ErrHeld)
		})
		r.must(r.rdbs[0].Del(ctx, "orders").Err())
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost)
		r.until("the release", func() bool { return r.count("orders", "") == 3 && r.count("orders", "stray") == 2 })
	})
}
