package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/netfault"
	"locktop/lock"
)

const waitersKey = "{orders}:waiters"

// process returns a client with connections of its own, like that of another process,
// and its network.
func (r *rig) process(owner string) (*lock.Client, *netfault.Network) {
	r.Helper()
	link := netfault.New(r.rdb.Options().Dialer)
	link.Undelayed = 4 // the handshake
	via := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, Dialer: link.Dial, DisableIdentity: true})
	c, err := lock.New(via, lock.Config{Owner: owner})
	r.must(err)
	r.Cleanup(func() {
		link.Thaw()
		c.Close()
		via.Close()
	})
	return c, link
}

// registered waits until n processes wait for the lock orders.
func (r *rig) registered(n int64) {
	r.Helper()
	r.until(fmt.Sprintf("%d registered processes", n), func() bool { return r.rdb.ZCard(ctx, waitersKey).Val() == n })
}

// wakingOne returns the kinds of locks of which a release wakes one process.
func wakingOne(c *lock.Client, o lock.Options) map[string]lock.Locker {
	return map[string]lock.Locker{"mutex": c.Mutex("orders", o), "reentrant": c.Reentrant("orders", o), "semaphore": c.Semaphore("orders", 1, o)}
}

var wakingOneKinds = []string{"mutex", "reentrant", "semaphore"}

// A release wakes one process, however many wait: the one that was refused first.
func TestAReleaseWakesOneProcess(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, kind := range wakingOneKinds {
			first, _ := r.process("first")
			lease := r.locked(wakingOne(first, lock.Options{})[kind])
			const processes = 20
			var order serviceOrder
			var all sync.WaitGroup
			for i := range processes {
				c, _ := r.process(fmt.Sprint(i))
				all.Go(func() {
					lease, err := wakingOne(c, lock.Options{})[kind].Lock(ctx)
					r.must(err)
					order.add(fmt.Sprint(i))
					r.must(lease.Unlock(ctx))
				})
				r.registered(int64(i) + 1)
			}
			before := 0
			if !r.fake {
				before = r.commands()
			}
			r.must(lease.Unlock(ctx))
			all.Wait()
			if want := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"; order.String() != want {
				r.Errorf("%s: served in the order %s", kind, order.String())
			}
			if !r.fake {
				// A release, an attempt and the looks of a slow machine; an attempt of each
				// process would be 20 times 5 commands. A semaphore also reads the time, the
				// limit and the last deadline.
				most := map[string]float64{"mutex": 14, "reentrant": 14, "semaphore": 19}[kind]
				if perHandOff := float64(r.commands()-before) / (processes + 1); perHandOff > most {
					r.Errorf("%s: %.1f commands per hand-off", kind, perHandOff)
				}
			}
			r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey).Val() == 0 })
		}
	})
}

// A cycle without a waiter is SET, then EVALSHA with GET, ZPOPMIN, PUBLISH and DEL.
func TestAnUncontendedCycleIsSixCommands(t *testing.T) {
	onRedis(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		r.must(r.locked(m).Unlock(ctx)) // the server knows the scripts
		before := r.commands()
		for range 10 {
			r.must(r.locked(m).Unlock(ctx))
		}
		if n := r.commands() - before - 1; n != 60 { // without INFO
			r.Errorf("10 cycles are %d commands, want 60", n)
		}
	})
}

// ghostProcess registers a process that never acquires the lock. With listening,
// it subscribes like a stopped process; else it is dead.
func (r *rig) ghostProcess(score float64, listening bool) {
	const process = "000000000001"
	r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: score, Member: "ghost~" + process}).Err())
	if listening {
		ear := r.rdb.Subscribe(ctx, "{orders}:free:"+process)
		r.Cleanup(func() { ear.Close() })
		_, err := ear.Receive(ctx)
		r.must(err)
	}
}

func TestADeadProcessIsNotWoken(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, kind := range wakingOneKinds {
			c, _ := r.process("a")
			lease := r.locked(wakingOne(c, lock.Options{})[kind])
			next := lockAsync(ctx, wakingOne(r.client(lock.Config{}), lock.Options{})[kind])
			r.registered(1)
			r.ghostProcess(0, false)
			released := time.Now()
			r.must(lease.Unlock(ctx))
			lease = r.won(next)
			if delay := time.Since(released); delay > 0 {
				r.Errorf("%s: the next process got the lock after %v, want at once", kind, delay)
			}
			r.must(lease.Unlock(ctx))
		}
	})
}

// A process that is woken and stopped delays the next one by 1 to 2 s.
func TestAStoppedProcessDelaysTheNext(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.locked(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Minute}))
		c, _ := r.process("next")
		next := lockAsync(ctx, c.Mutex("orders", lock.Options{}))
		r.registered(1)
		r.ghostProcess(0, true)
		time.Sleep(20 * time.Second)
		released := time.Now()
		r.must(lease.Unlock(ctx))
		lease = r.won(next)
		if delay := time.Since(released); delay > 2*time.Second {
			r.Errorf("the next process got the lock after %v, want at most 2 s", delay)
		}
		r.must(lease.Unlock(ctx))
	})
}

// A greedy client acquires the lock again right after each release, before the woken
// process can. When it has come too late nine times, the lock is handed to that process. The
// fences grow all the time.
func TestAWaiterIsPassedOverABoundedNumberOfTimes(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, kind := range wakingOneKinds {
			o := lock.Options{Fence: true}
			near, _ := r.process("greedy")
			c, link := r.process("patient")
			greedy := wakingOne(near, o)[kind]
			lease := r.locked(greedy)
			waiting := lockAsync(ctx, wakingOne(c, o)[kind])
			r.registered(1)
			link.Delay(func() time.Duration { return time.Millisecond })
			last, passes := lease.Fence(), -1
			for lease != nil {
				if lease.Fence() < last {
					r.Errorf("%s: fence %d after %d", kind, lease.Fence(), last)
				}
				passes++
				last = lease.Fence()
				time.Sleep(5 * time.Millisecond)
				r.must(lease.Unlock(ctx))
				if lease, _ = greedy.TryLock(ctx); passes > 50 {
					r.Fatalf("%s: the waiter was passed over %d times", kind, passes)
				}
			}
			if passes != 9 {
				r.Errorf("%s: the waiter was passed over %d times, want 9", kind, passes)
			}
			lease = r.won(waiting)
			if lease.Fence() <= last {
				r.Errorf("%s: after a hand-over the fence is %d, after %d", kind, lease.Fence(), last)
			}
			r.must(lease.Unlock(ctx))
			link.Thaw()
			r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey).Val() == 0 })
		}
	})
}

// A process that gives up while the message is on its way passes the wake-up on. So
// does one to which the lock was handed.
func TestAWaiterThatGivesUpPassesTheWakeUpOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, kind := range wakingOneKinds {
			for _, passes := range []int{3, 9} { // 9: the lock is handed to the leaver
				holder, _ := r.process("holder")
				leaver, link := r.process("leaver")
				c, _ := r.process("next")
				greedy := wakingOne(holder, lock.Options{})[kind]
				lease := r.locked(greedy)
				short, giveUp := context.WithCancel(ctx)
				left := lockAsync(short, wakingOne(leaver, lock.Options{})[kind])
				r.registered(1)
				link.Delay(func() time.Duration { return time.Millisecond })
				for range passes {
					time.Sleep(5 * time.Millisecond)
					r.must(lease.Unlock(ctx))
					lease = r.locked(greedy)
				}
				time.Sleep(5 * time.Millisecond)
				next := lockAsync(ctx, wakingOne(c, lock.Options{})[kind])
				r.registered(2)
				time.Sleep(5 * time.Millisecond)
				released := time.Now()
				r.must(lease.Unlock(ctx))
				time.Sleep(500 * time.Microsecond)
				giveUp()
				<-left.done
				if !errors.Is(left.err, context.Canceled) {
					r.Errorf("the leaver got %v", left.err)
				}
				lease = r.won(next)
				if delay := time.Since(released); delay > 10*time.Millisecond {
					r.Errorf("%s, passed over %d times: the next process got the lock after %v, want at once", kind, passes, delay)
				}
				r.must(lease.Unlock(ctx))
				link.Thaw()
			}
		}
	})
}

// A process that comes too late is the next one again, before those that came after it.
func TestAProcessThatComesTooLateKeepsItsPlace(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder, _ := r.process("holder")
		greedy := holder.Mutex("orders", lock.Options{})
		lease := r.locked(greedy)
		late, link := r.process("late")
		next := lockAsync(ctx, late.Mutex("orders", lock.Options{}))
		r.registered(1)
		time.Sleep(time.Millisecond)
		c, _ := r.process("second")
		second := lockAsync(ctx, c.Mutex("orders", lock.Options{}))
		r.registered(2)
		link.Delay(func() time.Duration { return time.Millisecond })
		for range 5 {
			r.must(lease.Unlock(ctx))
			lease = r.locked(greedy)
			time.Sleep(10 * time.Millisecond)
		}
		r.must(lease.Unlock(ctx))
		lease = r.won(next)
		if second.over() {
			r.Error("a process that came later got the lock first")
		}
		r.must(lease.Unlock(ctx))
		r.must(r.won(second).Unlock(ctx))
	})
}

// A process whose registration ends without a message, because it found the lock free,
// is not registered any more. A process that is woken without a waiter passes that on.
func TestAProcessIsRegisteredOnlyWhileItWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder, _ := r.process("holder")
		lease := r.locked(holder.Mutex("orders", lock.Options{}))
		c, _ := r.process("a")
		next := lockAsync(ctx, c.Mutex("orders", lock.Options{}))
		r.registered(1)
		name := r.rdb.ZRange(ctx, waitersKey, 0, 0).Val()[0]
		r.must(r.rdb.Del(ctx, "orders").Err())
		if err := lease.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
			r.Fatal(err)
		}
		lease = r.won(next)
		if n := r.rdb.ZCard(ctx, waitersKey).Val(); n != 0 {
			r.Error("the holder is registered")
		}

		other, _ := r.process("other")
		next = lockAsync(ctx, other.Mutex("orders", lock.Options{}))
		r.registered(1)
		r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: 1, Member: name}).Err())
		released := time.Now()
		r.must(lease.Unlock(ctx))
		lease = r.won(next)
		if delay := time.Since(released); delay > 0 {
			r.Errorf("the waiter got the lock after %v, want at once", delay)
		}
		r.must(lease.Unlock(ctx))
		r.registered(0)
	})
}

// The clients of one process share a registration. Each of them gets its turn at once.
func TestTheClientsOfAProcessShareARegistration(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.locked(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		c, _ := r.process("shared")
		other, _ := r.process("other")
		var all sync.WaitGroup
		for i := range 20 {
			from := c
			if i%4 == 0 {
				from = other
			}
			all.Go(func() {
				lease, err := from.As(fmt.Sprint(i/3)).Mutex("orders", lock.Options{}).Lock(ctx)
				r.must(err)
				time.Sleep(10 * time.Millisecond)
				r.must(lease.Unlock(ctx))
			})
		}
		time.Sleep(100 * time.Millisecond)
		r.registered(2)
		released := time.Now()
		r.must(lease.Unlock(ctx))
		all.Wait()
		if took := time.Since(released); took > 200*time.Millisecond {
			r.Errorf("20 holds of 10 ms took %v", took)
		}
		time.Sleep(2 * time.Second)
		r.registered(0)
	})
}

// Whichever of a Mutex and a Fair lock is released, the waiter of the other kind is
// woken.
func TestAMutexAndAFairLockWakeEachOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, _ := r.process("a")
		b, _ := r.process("b")
		o := lock.Options{TTL: time.Minute}
		for range 5 {
			lease := r.locked(a.Mutex("orders", o))
			next := lockAsync(ctx, b.Fair("orders", o))
			r.queued("orders", 1)
			released := time.Now()
			r.must(lease.Unlock(ctx))
			lease = r.won(next)
			if delay := time.Since(released); delay > 0 {
				r.Errorf("a fair waiter got the lock %v after the release of a mutex", delay)
			}
			next = lockAsync(ctx, a.Mutex("orders", o))
			r.registered(1)
			released = time.Now()
			r.must(lease.Unlock(ctx))
			r.must(r.won(next).Unlock(ctx))
			if delay := time.Since(released); delay > 0 {
				r.Errorf("a mutex got the lock %v after the release of a fair one", delay)
			}
		}
	})
}

// Registrations that the server has lost come back, and those of a dead process end.
func TestRegistrationsAreRefreshedAndExpire(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.locked(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		c, link := r.process("doomed")
		short, stop := context.WithCancel(ctx)
		next := lockAsync(short, c.Mutex("orders", lock.Options{}))
		r.registered(1)
		r.must(r.rdb.Del(ctx, waitersKey).Err())
		time.Sleep(2 * time.Second)
		if n := r.rdb.ZCard(ctx, waitersKey).Val(); n != 1 {
			r.Errorf("%d processes are registered 2 s after the loss, want 1", n)
		}
		time.Sleep(10 * time.Minute)
		r.registered(1)
		link.Freeze()
		time.Sleep(16 * time.Second)
		if n := r.rdb.ZCard(ctx, waitersKey).Val(); n != 0 {
			r.Errorf("a dead process is registered after 16 s")
		}
		r.must(lease.Unlock(ctx))
		stop()
		<-next.done
	})
}

// A user without permission for the waiters can use the lock. A release then wakes all
// processes.
func TestWithoutPermissionForTheWaitersAReleaseWakesAll(t *testing.T) {
	onRedis(t, func(r *rig) {
		r.must(r.rdb.ACLSetUser(ctx, "plain", "on", ">secret", "~orders", "+@all").Err())
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		rdb := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, Username: "plain", Password: "secret"})
		defer rdb.Close()
		c, err := lock.New(rdb, lock.Config{})
		r.must(err)
		defer c.Close()
		lease := r.locked(c.Mutex("orders", lock.Options{}))
		next := lockAsync(ctx, c.As("next").Mutex("orders", lock.Options{}))
		r.until("a waiter that listens", func() bool { return len(r.rdb.PubSubChannels(ctx, "{orders}:free").Val()) == 1 })
		listener := r.rdb.Subscribe(ctx, "{orders}:free")
		defer listener.Close()
		_, err = listener.Receive(ctx)
		r.must(err)
		r.must(lease.Unlock(ctx))
		if message, err := listener.ReceiveMessage(ctx); err != nil || message.Payload != "orders" {
			r.Errorf("got %v, %v; want the release", message, err)
		}
		r.must(r.won(next).Unlock(ctx))
		if keys := strings.Join(r.rdb.Keys(ctx, "*").Val(), " "); keys != "" {
			r.Errorf("the server has %s", keys)
		}
	})
}
