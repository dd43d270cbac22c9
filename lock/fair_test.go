package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// serviceOrder collects the order in which waiters get the lock.
type serviceOrder struct {
	mu    sync.Mutex
	names []string
}

func (s *serviceOrder) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

func (s *serviceOrder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.names, " ")
}

// upTo returns the numbers below n in order, as a serviceOrder does.
func upTo(n int) string {
	var order serviceOrder
	for i := range n {
		order.add(fmt.Sprint(i))
	}
	return order.String()
}

// queued waits until n waiters are in the queue of a fair lock.
func (r *rig) queued(key string, n int64) {
	r.Helper()
	r.until(fmt.Sprint(n, " waiters"), func() bool { return r.rdb.ZCard(ctx, "{"+key+"}:waiters").Val() == n })
}

// Scenario 47.
func TestAFairLockIsHandedOverAndNeverFreeBetween(t *testing.T) {
	onBoth(t, func(r *rig) {
		diary := &eventRecorder{}
		a, b := r.client(lock.Config{Owner: "a", Observe: diary.write}), r.client(lock.Config{Owner: "b"})
		lease := r.lock(a.Fair("orders", lock.Options{TTL: time.Minute}))
		got := lockAsync(ctx, b.Fair("orders", lock.Options{TTL: time.Minute}))
		r.queued("orders", 1)
		messages := r.rdb.PSubscribe(ctx, "{orders}:free*")
		defer messages.Close()
		check.Must(messages.Receive(ctx))(r)

		r.must(lease.Unlock(ctx))
		holder := r.rdb.Get(ctx, "orders").Val()
		check.True(r, strings.HasPrefix(holder, "b~"), "after the unlock the lock is held by %q, want b", holder)
		next := r.won(got)
		r.holds("orders", next.Token())
		check.AtLeast(r, r.rdb.PTTL(ctx, "orders").Val(), 50*time.Second, "the claim did not extend to the full TTL")
		message := check.Must(messages.ReceiveMessage(ctx))(r)
		check.Equal(r, message.Payload, next.Token(), "the message names")
		check.True(r, message.Channel == "{orders}:free:"+next.Token()[len(next.Token())-12:],
			"the message is on %q, want the channel of the next holder's process", message.Channel)
		check.Equal(r, diary.story(), "[acquired released handed over]", "a's story")
		r.must(next.Unlock(ctx))
		r.holds("orders", "")
	})
}

// ghosts adds waiters to the queue that never claim the lock, with listening of one process
// that is stopped, else of processes that have died.
func (r *rig) ghosts(n int, listening bool) (tokens []string) {
	for i := range n {
		process := "000000000000"
		if listening && i == 0 {
			r.hear("{orders}:free:" + process)
		} else if !listening {
			process = fmt.Sprintf("%012d", i)
		}
		ghost := fmt.Sprintf("dead:1~0199f3a4-6f0%d-7000-8000-%s", i, process)
		r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: float64(i) - 4e15, Member: ghost}).Err())
		tokens = append(tokens, ghost)
	}
	return tokens
}

// Scenario 38: a waiter that was killed in the queue costs the waiters behind it
// nothing: the server knows that its process does not subscribe.
func TestADeadWaiterIsPassedOver(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Fair("orders", lock.Options{}))
		r.ghosts(3, false)
		got := r.waitFair(r.client(lock.Config{}), 1)
		r.queued("orders", 4)
		r.must(lease.Unlock(ctx))
		holder := r.rdb.Get(ctx, "orders").Val()
		check.False(r, strings.HasPrefix(holder, "dead:"), "handed to %q", holder)
		<-got
	})
}

// Scenario 38: a stopped process costs the others the time to claim the lock, however many
// waiters it has.
func TestAFrozenProcessIsPassedOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Fair("orders", lock.Options{}))
		frozen := r.ghosts(5, true)[0]
		got := r.waitFair(r.client(lock.Config{}), 1)
		time.Sleep(1500 * time.Millisecond)
		released := time.Now()
		r.must(lease.Unlock(ctx))
		r.holds("orders", frozen)
		check.Between(r, (<-got).Sub(released), 900*time.Millisecond, 1050*time.Millisecond, "the next one got in after")
	})
}

// Within a process the reply to the release informs the next holder, also if no caller
// waits for it.
func TestAnUnlockWhoseContextEndsDoesNotDelayTheNextHolder(t *testing.T) {
	onBoth(t, func(r *rig) {
		c, o := r.client(lock.Config{}), lock.Options{}
		for _, kind := range []string{"fair", "all", "scattered"} {
			for range 10 {
				lease := r.lock(kinds[kind](c, "orders", o))
				next := lockAsync(ctx, kinds[kind](c, "orders", o))
				r.queued("orders", 1)
				dead, cancel := context.WithCancel(ctx)
				cancel()
				released := time.Now()
				err := lease.Unlock(dead)
				check.True(r, err == nil || errors.Is(err, context.Canceled), "%s: got %v", kind, err)
				after := r.won(next)
				took := time.Since(released)
				check.Require(r, (!r.fake || took <= 900*time.Millisecond) && !tooLate(took, 900*time.Millisecond), "%s: the next one got in after %v", kind, took)
				r.must(after.Unlock(ctx))
			}
		}
	})
}

// If the holder dies and the first waiter has stopped, the others hand the lock over.
func TestALockIsHandedOverThoughItsFirstWaiterHasStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.lock(c.Fair("orders", lock.Options{}))
		got := r.waitFair(c, 1) // c is subscribed, and queues with its first request
		time.Sleep(time.Millisecond)
		r.must(lease.Unlock(ctx))
		<-got
		began := time.Now()
		r.must(r.rdb.Set(ctx, "orders", "crashed:1~0199f3a4-6f00-7000-8000-00000000000a", 3*time.Second).Err())
		r.ghosts(3, true)
		got = r.waitFair(c, 1)
		time.Sleep(2500 * time.Millisecond)
		later := r.waitFair(c, 1) // which does not delay the look of the first one
		check.Between(r, (<-got).Sub(began), 3*time.Second, 4100*time.Millisecond, "succeeded after")
		<-later
	})
}

// A client that waits again soon does not subscribe again.
func TestASubscriptionOutlivesTheWaitByAMoment(t *testing.T) {
	beside(t)
	wait := func(r *rig) {
		c := r.client(lock.Config{})
		for range 5 {
			lease := r.lock(c.Fair("orders", lock.Options{}))
			got := r.waitFair(c, 1)
			r.queued("orders", 1)
			r.must(lease.Unlock(ctx))
			<-got
		}
	}
	sub(t, "one for all waits", onRedis, func(r *rig) {
		wait(r)
		check.Contains(r, r.rdb.Info(ctx, "commandstats").Val(), "cmdstat_subscribe:calls=1,", "want one subscription")
	})
	sub(t, "it ends", inBubble, func(r *rig) {
		wait(r)
		check.AtLeast(r, len(r.rdb.PubSubChannels(ctx, "*").Val()), 1, "subscriptions after the last wait")
		r.until("the subscription to end", func() bool { return len(r.rdb.PubSubChannels(ctx, "*").Val()) == 0 })
	})
}

// listener is a connection whose writes fail from age 1 on if it has subscriptions. Its reader does not
// notice, as between the end of a server and its restart.
type listener struct {
	net.Conn
	age     *atomic.Int64
	made    int64
	listens bool
}

func (l *listener) Write(p []byte) (int, error) {
	l.listens = l.listens || bytes.Contains(p, []byte("\nsubscribe\r"))
	if l.listens && l.age.Load() > l.made {
		return 0, io.ErrClosedPipe
	}
	return l.Conn.Write(p)
}

// Scenario 37. When go-redis cannot write a SUBSCRIBE, it makes a new connection without the channels of that
// request. A process that did not ask again would lose its place at each release.
func TestASubscriptionThatFailsIsMadeOnTheNextConnection(t *testing.T) {
	onBoth(t, func(r *rig) {
		var age atomic.Int64
		link := r.via.Options().Dialer
		r.dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := link(ctx, network, addr)
			return &listener{Conn: conn, age: &age, made: age.Load()}, err
		})
		c, other := r.client(lock.Config{}), r.near()
		first, second := r.lock(other.Fair("first", lock.Options{})), r.lock(other.Fair("second", lock.Options{}))
		one := lockAsync(ctx, c.Fair("first", lock.Options{}))
		r.queued("first", 1)
		age.Store(1)
		two := lockAsync(ctx, c.Fair("second", lock.Options{}))
		r.until("the subscription", func() bool { return r.rdb.PubSubNumSub(ctx, "{second}:free").Val()["{second}:free"] == 1 })
		for held, next := range map[*lock.Lease]*await{first: one, second: two} {
			r.must(held.Unlock(ctx))
			<-next.done
			r.must(next.err)
		}
	})
}

// Scenario 40.
func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	onBoth(t, func(r *rig) {
		diary := &eventRecorder{}
		c := r.client(lock.Config{Observe: diary.write})
		lease := r.lock(c.Fair("orders", lock.Options{TTL: time.Hour}))
		impatient, cancel := context.WithCancel(ctx)
		gaveUp := inBackground(func() error { return tried(c.Fair("orders", lock.Options{TTL: time.Hour}).Lock(impatient)) })
		r.queued("orders", 1)
		r.until("the waiter to know the holder", func() bool { return diary.count(lock.Contended) == 1 })
		cancel()
		err := <-gaveUp
		check.True(r, errors.Is(err, context.Canceled) && errors.Is(err, lock.ErrHeld), "got %v, want both the cancellation and ErrHeld", err)
		left := time.Now()
		r.queued("orders", 0)
		took := time.Since(left)
		check.False(r, tooLate(took, 5*time.Second), "it was in the queue for another %v; a dead one would be for 16 s", took)
		r.must(lease.Unlock(ctx))
		r.until("an empty server", func() bool { return r.rdb.DBSize(ctx).Val() == 0 })
	})
}

// A waiter whose context ends at the moment of the release or of the hand-over passes the message
// or the lock on.
func TestAMessageIsNotLostWithACancelledWaiter(t *testing.T) {
	for kind, rounds := range map[string]int{"mutex": 100, "fair": testtier.Size(12, 50, 50)} {
		sub(t, kind, onBoth, func(r *rig) {
			c, o := r.client(lock.Config{}), lock.Options{TTL: time.Minute}
			of := func(owner string) lock.Locker { return kinds[kind](c.As(owner), "orders", o) }
			for range rounds {
				lease := r.lock(of("a"))
				fickle, cancel := context.WithCancel(ctx)
				leaver := lockAsync(fickle, of("b"))
				if kind == "fair" {
					r.queued("orders", 1)
				}
				next := lockAsync(r.soon(5*time.Second), of("c"))
				if kind == "fair" {
					r.queued("orders", 2)
				}
				began := time.Now()
				unlocked := inBackground(func() error { return lease.Unlock(ctx) })
				cancel()
				if <-leaver.done; leaver.err == nil {
					r.must(leaver.lease.Unlock(ctx))
				}
				r.must(r.won(next).Unlock(ctx)) // it does not sleep though the lock is free
				r.must(<-unlocked)
				check.True(r, !r.fake || time.Since(began) == 0, "%s: c waited %v", kind, time.Since(began))
			}
		})
	}
}

// They wait for minutes.
func TestTheGoroutinesOfAnIdentityAreServedInOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.lock(c.Mutex("orders", lock.Options{}))
		var order serviceOrder
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				l := r.lock(c.Mutex("orders", lock.Options{}))
				order.add(fmt.Sprint(i))
				r.must(l.Unlock(ctx))
			})
			time.Sleep(time.Second)
		}
		time.Sleep(3 * time.Minute)
		began := time.Now()
		r.must(lease.Unlock(ctx))
		all.Wait()
		check.Equal(r, order.String(), upTo(8), "served in the order")
		check.AtMost(r, time.Since(began), 0, "it took")
	})
}

// waitFair starts n goroutines that wait for a fair lock and release it. The channel
// receives the time of each acquire.
func (r *rig) waitFair(c *client, n int) <-chan time.Time {
	got := make(chan time.Time, n)
	for range n {
		go func() {
			lease := r.lock(c.Fair("orders", lock.Options{}))
			at := time.Now()
			r.must(lease.Unlock(ctx))
			got <- at
		}()
	}
	return got
}

// All waiters that arrive before the first subscription is confirmed are in the queue right after it. Waiters
// that are no longer there join it again, in the same order.
func TestForgottenWaitersComeBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		const n = 5
		lease := r.lock(r.client(lock.Config{}).Fair("orders", lock.Options{}))
		got := r.waitFair(r.client(lock.Config{}), n)
		time.Sleep(time.Millisecond)
		check.Equal(r, r.rdb.ZCard(ctx, waitersKey).Val(), n, "waiters in the queue after the subscription")
		order := r.rdb.ZRange(ctx, waitersKey, 0, -1).Val()
		r.must(r.rdb.Del(ctx, waitersKey).Err())
		time.Sleep(2 * time.Second)
		check.True(r, slices.Equal(r.rdb.ZRange(ctx, waitersKey, 0, -1).Val(), order), "of the waiters %v came back: %v", order, r.rdb.ZRange(ctx, waitersKey, 0, -1).Val())
		r.must(lease.Unlock(ctx))
		for range n {
			<-got
		}
	})
}

// A queue of dead waiters expires.
func TestADeadQueueVanishes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "crashed:1~0199f3a4-6f00-7000-8000-000000000000", time.Hour).Err())
		r.waitFair(r.client(lock.Config{}), 3)
		time.Sleep(time.Second)
		r.queued("orders", 3)
		r.link.Freeze()
		time.Sleep(17 * time.Second)
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 1, "keys")
		r.must(r.rdb.Del(ctx, "orders").Err())
		r.link.Thaw()
		time.Sleep(time.Minute)
	})
}

// Scenario 47.
func TestTryLockDoesNotPassTheQueue(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.locked(c.Fair("orders", lock.Options{}))
		waiting := passAsync(c.As("b").Fair("orders", lock.Options{}))
		r.queued("orders", 1)
		r.must(r.rdb.Del(ctx, "orders").Err()) // free, but with a queue
		check.ErrorIs(r, tried(c.As("c").Fair("orders", lock.Options{}).TryLock(ctx)), lock.ErrHeld)
		r.must(<-waiting)
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost)
	})
}

func TestAFairLockIsHandedOverWhenMemoryIsFull(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.lock(c.Fair("orders", lock.Options{Fence: true}))
		got := lockAsync(ctx, c.As("b").Fair("orders", lock.Options{Fence: true}))
		r.queued("orders", 1)
		r.must(r.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
		r.must(lease.Unlock(ctx))
		next := r.won(got)
		check.AtLeast(r, fenceOf(next), fenceOf(lease)+1, "fence")
		r.must(next.Unlock(ctx))
		r.holds("orders", "")
	})
}

// Scenario 37. 200 waiters in 4 processes: the server numbers the moments at which each was queued
// and served.
func TestAFairLockServesProcessesInOrderOfArrival(t *testing.T) {
	onRedis(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Fair("fair", lock.Options{TTL: time.Minute}))
		all := r.workers("queue")
		const n = processes * waitersPerProcess
		r.queued("fair", n)
		arrived := r.rdb.ZRange(ctx, "{fair}:waiters", 0, -1).Val()
		r.must(lease.Unlock(ctx))
		r.must(all.Wait())
		served := r.rdb.LRange(ctx, "served", 0, -1).Val()
		check.Require(r, len(served) == n, "%d of %d were served", len(served), n)
		check.Equal(r, strings.Join(r.rdb.Keys(ctx, "*").Val(), " "), "served", "the server has")
		for i := range served {
			check.Require(r, served[i] == arrived[i], "waiter %d was served out of order", i)
		}
	})
}

const waitersPerProcess = 50

// queue is the worker of TestAFairLockServesProcessesInOrderOfArrival.
func queue(rdb *redis.Client, c *client) error {
	var all errgroup.Group
	for range waitersPerProcess {
		all.Go(func() error {
			lease, err := c.Fair("fair", lock.Options{TTL: time.Minute}).Lock(ctx)
			if err != nil {
				return err
			}
			return errors.Join(rdb.RPush(ctx, "served", lease.Token()).Err(), lease.Unlock(ctx))
		})
	}
	return all.Wait()
}

// The number of commands of a hand-over, inside scripts and outside, does not depend
// on the length of the queue.
func TestAHandOverCostsTheSameHoweverLongTheQueue(t *testing.T) {
	alone(t)
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		cost := func(waiters int) float64 {
			key := fmt.Sprint("q", waiters)
			lease := r.lock(c.Fair(key, lock.Options{TTL: time.Minute}))
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() { r.must(pass(c.Fair(key, lock.Options{TTL: time.Minute}))) })
			}
			r.queued(key, int64(waiters))
			before := r.commands()
			r.must(lease.Unlock(ctx))
			all.Wait()
			return float64(r.commands()-before) / float64(waiters)
		}
		most := testtier.Size(256, 1024, 1024)
		few, many := cost(16), cost(most)
		t.Logf("commands a hand-over: %.1f with 16 waiters, %.1f with %d", few, many, most)
		check.AtMost(r, many, few*1.1, "commands of a hand-over with %d waiters", most)
	})
}

// The next holder sends no command if it is in the same process and needs no other TTL
// and no fence.
func TestAHandOverWithinAProcessIsOneCommand(t *testing.T) {
	plain := lock.Options{TTL: 20 * time.Second}
	for name, c := range map[string]struct {
		from, to lock.Options
		commands int
	}{
		"alike":       {plain, plain, 1},
		"longer":      {plain, lock.Options{TTL: 30 * time.Second}, 2},
		"fenced":      {plain, lock.Options{TTL: 20 * time.Second, Fence: true}, 2},
		"both fenced": {lock.Options{TTL: 20 * time.Second, Fence: true}, lock.Options{TTL: 20 * time.Second, Fence: true}, 2},
	} {
		sub(t, name, onRedis, func(r *rig) {
			client := r.client(lock.Config{})
			first := r.lock(client.Fair("orders", c.from))
			won := lockAsync(ctx, client.Fair("orders", c.to))
			r.queued("orders", 1)
			before := r.calls("evalsha")
			r.must(first.Unlock(ctx))
			next := r.won(won)
			check.Equal(r, r.calls("evalsha")-before, c.commands, "commands")
			left := r.rdb.PTTL(ctx, "orders").Val()
			check.True(r, left > c.to.TTL-5*time.Second && left <= c.to.TTL, "%v left", left)
			check.Equal(r, c.to.Fence, fenceOf(next) > 0, "fenced")
			r.must(next.Unlock(ctx))
		})
	}
}

// commands returns how many commands the server has executed, including those in
// scripts.
func (r *rig) commands() int { return r.calls("") }

// calls returns how many commands with that prefix the server has executed.
func (r *rig) calls(name string) int {
	r.Helper()
	total := 0
	for line := range strings.Lines(r.rdb.Info(ctx, "commandstats").Val()) {
		var calls int
		if command, rest, ok := strings.Cut(line, ":calls="); ok && strings.HasPrefix(command, "cmdstat_"+name) {
			fmt.Sscanf(rest, "%d", &calls)
		}
		total += calls
	}
	return total
}

// Scenario 39: however often waiters come and go, none of them is left in the queue.
func TestWaitersThatComeAndGoDoNotDelayTheNext(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.near()
		lease := r.lock(near.Fair("orders", lock.Options{}))
		clients := []*client{near.As("a"), near.As("b"), r.client(lock.Config{Owner: "doomed"})}
		for range 20 {
			var all sync.WaitGroup
			for _, c := range clients {
				all.Go(func() {
					check.ErrorIs(r, within(200*time.Millisecond, c.Fair("orders", lock.Options{}).Lock), lock.ErrHeld)
				})
			}
			all.Wait()
		}
		time.Sleep(10 * time.Millisecond)
		check.AtMost(r, r.rdb.ZCard(ctx, waitersKey).Val(), 0, "waiters that have left are in the queue")

		doomed, kill := context.WithCancel(ctx)
		last := lockAsync(doomed, clients[2].Fair("orders", lock.Options{}))
		r.queued("orders", 1)
		r.link.Freeze() // the client dies
		released := time.Now()
		r.must(lease.Unlock(ctx))
		next := r.lock(near.Fair("orders", lock.Options{}))
		check.AtMost(r, time.Since(released), 1001*time.Millisecond, "the next one got in after")
		r.must(next.Unlock(ctx))
		kill()
		<-last.done
	})
}
