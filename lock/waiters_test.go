package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
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

const waitersKey = "{orders}:waiters"

// process returns a client with connections of its own, like that of another process,
// and its network.
func (r *rig) process(owner string) (*client, *netfault.Network) {
	r.Helper()
	link := netfault.New(r.rdb.Options().Dialer)
	link.Undelayed = 4 // the handshake
	via := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, Dialer: link.Dial, DisableIdentity: true})
	c := r.open(via, lock.Config{Owner: owner})
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

// A release of these kinds wakes one process.
var wakingOneKinds = []string{"mutex", "reentrant", "semaphore"}

// A release wakes one process, however many wait: the one that was refused first.
func TestAReleaseWakesOneProcess(t *testing.T) {
	onBothLong(t, "it counts the commands of 21 processes, which a busy machine adds to", func(r *rig) {
		for _, kind := range wakingOneKinds {
			// A semaphore also reads the time, the limit and the last deadline.
			order := r.wakesOne(kind, kind, map[string]float64{"mutex": 25, "reentrant": 25, "semaphore": 35}[kind])
			if r.fake { // a look of a slow machine may come before the process that was woken
				check.Equal(r, order, upTo(testtier.Size(8, 20, 20)), "%s: served in the order", kind)
			}
		}
	})
}

// wakesOne has processes wait for a lock of a kind behind a holder, and returns the order in which
// they are served after its release. It checks that each hand-off costs at most so many commands: a
// release, an attempt and the looks of a slow machine. An attempt of each process would be 20
// times 5 commands. That no second process is woken is visible in the order of the embedded server.
func (r *rig) wakesOne(kind, holder string, most float64) string {
	r.Helper()
	first, _ := r.process("first")
	lease := r.locked(kinds[holder](first, "orders", lock.Options{}))
	processes := testtier.Size(8, 20, 20)
	var order serviceOrder
	var all sync.WaitGroup
	for i := range processes {
		c, _ := r.process(fmt.Sprint(i))
		all.Go(func() {
			lease := r.lock(kinds[kind](c, "orders", lock.Options{}))
			order.add(fmt.Sprint(i))
			r.must(lease.Unlock(ctx))
		})
		if kind == "writer" { // the first one claims to be next, and the others register
			r.claimed("orders")
			r.registered(int64(i))
		} else {
			r.registered(int64(i) + 1)
		}
		time.Sleep(time.Millisecond) // the next one gets a larger ticket
	}
	before := 0
	if !r.fake {
		before = r.commands()
	}
	r.must(lease.Unlock(ctx))
	all.Wait()
	if !r.fake {
		check.AtMost(r, float64(r.commands()-before)/float64(processes+1), most, "%s: commands per hand-off", kind)
	}
	r.until("the end of all keys", func() bool { return r.rdb.Exists(ctx, "orders", waitersKey).Val() == 0 })
	return order.String()
}

// passOver releases a lease and acquires its lock again n times, before the process that is woken
// can, and returns the last lease.
func (r *rig) passOver(n int, greedy lock.Locker, lease *lock.Lease) *lock.Lease {
	r.Helper()
	for range n {
		time.Sleep(5 * time.Millisecond)
		r.must(lease.Unlock(ctx))
		lease = r.locked(greedy)
	}
	return lease
}

// ghostProcess registers a process that never acquires the lock. With listening,
// it subscribes like a stopped process; else it is dead.
func (r *rig) ghostProcess(score float64, listening bool) {
	const process = "000000000001"
	r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: score, Member: "ghost~" + process}).Err())
	if listening {
		r.hear("{orders}:free:" + process)
	}
}

// If a release reaches no registered process, because it is dead or because the waiters
// cannot be read, it sends its message to all: an observer, and a waiter that could not
// register.
func TestAReleaseThatReachesNoProcessTellsAll(t *testing.T) {
	for name, before := range map[string]func(r *rig){
		"dead":     func(r *rig) { r.ghostProcess(0, false) },
		"unusable": func(r *rig) { r.must(r.rdb.Set(ctx, waitersKey, "not a zset", 0).Err()) },
	} {
		sub(t, name, inBubble, func(r *rig) {
			listener := r.hear("{orders}:free")
			for _, kind := range wakingOneKinds {
				lease := r.locked(kinds[kind](r.client(lock.Config{}), "orders", lock.Options{}))
				before(r)
				r.must(lease.Unlock(ctx))
				message, err := listener.ReceiveTimeout(ctx, time.Second)
				check.True(r, err == nil, "%s: got %v, %v; want the release", kind, message, err)
			}
		})
	}
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
		r.passesOn(lease, next, 2*time.Second, "the next process got the lock after")
	})
}

// Who waits when the server's clock is set back does not wait behind all that come later.
func TestAClockThatIsSetBackStarvesNoWaiter(t *testing.T) {
	for kind, against := range map[string]string{"mutex": "mutex", "semaphore": "semaphore", "writer": "writer", "reader": "writer"} {
		sub(t, kind, inBubble, func(r *rig) {
			o := lock.Options{TTL: time.Hour}
			lease := r.locked(kinds[against](r.near(), "orders", o))
			c, _ := r.process("patient")
			patient := lockAsync(ctx, kinds[kind](c, "orders", o))
			time.Sleep(time.Second)
			var passed atomic.Int64
			var all sync.WaitGroup
			all.Go(func() {
				for ; !patient.over(); time.Sleep(time.Millisecond) {
					r.embedded.Redis.SetTime(time.Now().Add(-20 * time.Second))
				}
			})
			for i := range 3 {
				c, _ := r.process(fmt.Sprint("greedy", i))
				all.Go(func() {
					for !patient.over() && passed.Add(1) < 200 {
						lease := r.lock(kinds[against](c, "orders", o))
						time.Sleep(3 * time.Millisecond)
						r.must(lease.Unlock(ctx))
					}
				})
			}
			time.Sleep(time.Second)
			r.must(lease.Unlock(ctx))
			r.must(r.won(patient).Unlock(ctx))
			check.AtMost(r, passed.Load(), 20, "the waiter was passed over")
			all.Wait()
		})
	}
}

// A greedy client acquires the lock again right after each release, before the woken
// process can. When it has come too late nine times, the lock is handed to that process. The
// fences grow all the time. So it is for an All that finds another key free.
func TestAWaiterIsPassedOverABoundedNumberOfTimes(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, kind := range append(wakingOneKinds, "all") {
			near, _ := r.process("greedy")
			c, link := r.process("patient")
			var greedy, patient lock.Locker = near.Mutex("orders", lock.Options{}), c.All([]string{"a", "orders"}, lock.Options{})
			fenced := kind != "all" && kind != "semaphore"
			if kind != "all" {
				greedy, patient = kinds[kind](near, "orders", lock.Options{Fence: fenced}), kinds[kind](c, "orders", lock.Options{Fence: fenced})
			}
			lease := r.locked(greedy)
			waiting := lockAsync(ctx, patient)
			r.registered(1)
			link.Delay(func() time.Duration { return time.Millisecond })
			last, passes := fenceOf(lease), -1
			for lease != nil {
				check.AtLeast(r, fenceOf(lease), last, "%s: fence", kind)
				passes++
				last = fenceOf(lease)
				time.Sleep(5 * time.Millisecond)
				r.must(lease.Unlock(ctx))
				if lease, _ = greedy.TryLock(ctx); passes > 50 {
					r.Fatalf("%s: the waiter was passed over %d times", kind, passes)
				}
			}
			check.Equal(r, passes, 9, "%s: times that the waiter was passed over", kind)
			lease = r.won(waiting)
			if fenced {
				check.True(r, fenceOf(lease) > last, "%s: after a hand-over the fence is %d, after %d", kind, fenceOf(lease), last)
				r.covered(lease) // the claim sets the whole TTL
			}
			r.must(lease.Unlock(ctx))
			link.Thaw()
			r.until("the end of the registrations", func() bool { return r.rdb.Exists(ctx, waitersKey).Val() == 0 })
		}
	})
}

// A process is woken once and comes too late. Then it looks by itself for a minute, which
// does not count as coming too late: the next release does not hand the lock to it.
func TestAProcessThatLooksByItselfIsNotPassedOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, kind := range wakingOneKinds {
			near, _ := r.process("greedy")
			c, link := r.process("patient")
			greedy := kinds[kind](near, "orders", lock.Options{})
			lease := r.locked(greedy)
			waiting := lockAsync(ctx, kinds[kind](c, "orders", lock.Options{}))
			r.registered(1)
			link.Delay(func() time.Duration { return time.Millisecond })
			time.Sleep(5 * time.Millisecond)
			r.must(lease.Unlock(ctx))
			lease = r.locked(greedy)
			time.Sleep(time.Minute)
			r.must(lease.Unlock(ctx))
			lease, err := greedy.TryLock(ctx)
			check.NoError(r, err, "%s: the lock was handed to a process that came too late once", kind)
			r.must(lease.Unlock(ctx))
			link.Thaw()
			r.must(r.won(waiting).Unlock(ctx))
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
				greedy := kinds[kind](holder, "orders", lock.Options{})
				lease := r.locked(greedy)
				short, giveUp := context.WithCancel(ctx)
				left := lockAsync(short, kinds[kind](leaver, "orders", lock.Options{}))
				r.registered(1)
				link.Delay(func() time.Duration { return time.Millisecond })
				lease = r.passOver(passes, greedy, lease)
				time.Sleep(5 * time.Millisecond)
				next := lockAsync(ctx, kinds[kind](c, "orders", lock.Options{}))
				r.registered(2)
				time.Sleep(5 * time.Millisecond)
				released := time.Now()
				r.must(lease.Unlock(ctx))
				time.Sleep(500 * time.Microsecond)
				giveUp()
				<-left.done
				check.ErrorIs(r, left.err, context.Canceled, "the leaver")
				lease = r.won(next)
				check.AtMost(r, time.Since(released), 10*time.Millisecond, "%s, passed over %d times: the next process got the lock after", kind, passes)
				r.must(lease.Unlock(ctx))
				link.Thaw()
			}
		}
	})
}

// givingUpATurn are the ways in which a waiter that was passed over nine times gives up.
// Its network has a delay of 1 ms each way, and its tenth attempt, which registers a
// token, is about to be sent.
var givingUpATurn = map[string]func(r *rig, link *netfault.Network, cancel func()){
	"before the reply": func(r *rig, _ *netfault.Network, cancel func()) {
		time.Sleep(1500 * time.Microsecond)
		cancel()
	},
	"after its connection broke before the reply": func(r *rig, link *netfault.Network, cancel func()) {
		time.Sleep(1500 * time.Microsecond)
		link.FreezeReplies()
		time.Sleep(5 * time.Millisecond)
		link.Cut()
		link.Thaw()
		time.Sleep(time.Second)
		cancel()
	},
	"just before its connection breaks": func(r *rig, link *netfault.Network, cancel func()) {
		time.Sleep(5 * time.Millisecond)
		link.Freeze()
		cancel()
		time.Sleep(time.Millisecond)
		link.Cut()
		link.Thaw()
	},
}

// A waiter that has registered a token and gives up leaves none behind. Else the next
// release would hand the lock to it.
func TestAWaiterThatGivesUpIsHandedNoLock(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := lock.Options{TTL: time.Minute}
		for _, kind := range append(wakingOneKinds, "all") {
			for way, giveUp := range givingUpATurn {
				holder, _ := r.process("holder")
				leaver, link := r.process("leaver")
				c, _ := r.process("next")
				greedy := kinds[kind](holder, "orders", o)
				lease := r.locked(greedy)
				short, cancel := context.WithCancel(ctx)
				left := lockAsync(short, kinds[kind](leaver, "orders", o))
				r.registered(1)
				link.Delay(func() time.Duration { return time.Millisecond })
				lease = r.passOver(9, greedy, lease)
				time.Sleep(time.Millisecond) // of the message
				giveUp(r, link, cancel)
				<-left.done
				check.ErrorIs(r, left.err, context.Canceled, "%s, %s: the leaver", kind, way)
				time.Sleep(500 * time.Millisecond) // the leaver is subscribed yet
				if left := r.rdb.ZRange(ctx, waitersKey, 0, -1).Val(); len(left) > 0 {
					r.Errorf("%s, %s: without a waiter %q are registered", kind, way, left)
				}
				next := lockAsync(ctx, kinds[kind](c, "orders", o))
				r.registered(1)
				time.Sleep(5 * time.Millisecond)
				r.passesOn(lease, next, 0, "%s, %s: the next process got the lock after", kind, way)
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
		check.False(r, second.over(), "a process that came later got the lock first")
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
		err := lease.Unlock(ctx)
		check.Require(r, errors.Is(err, lock.ErrLost), "%v", err)
		lease = r.won(next)
		check.Equal(r, r.rdb.ZCard(ctx, waitersKey).Val(), 0, "the holder is registered")

		other, _ := r.process("other")
		next = lockAsync(ctx, other.Mutex("orders", lock.Options{}))
		r.registered(1)
		r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: 1, Member: name}).Err())
		r.passesOn(lease, next, 0, "the waiter got the lock after")
		r.registered(0)
	})
}

// waitOften has a client, which has held the lock before, wait n times for a lock that
// stays held. It returns the client's lock.
func (r *rig) waitOften(n int) (lock.Locker, *lock.Lease) {
	c, _ := r.process("waiter")
	m := c.Mutex("orders", lock.Options{})
	r.must(r.locked(m).Unlock(ctx)) // the server knows the scripts
	holder, _ := r.process("holder")
	lease := r.locked(holder.Mutex("orders", lock.Options{}))
	for range n {
		ctx, cancel := context.WithCancel(ctx)
		refused := lockAsync(ctx, m)
		r.registered(1)
		cancel()
		<-refused.done
		r.registered(0)
	}
	return m, lease
}

// A process that waits for a lock again asks with SET NX before it registers, as long as
// this acquires the lock.
func TestAWaiterAsksBySetNXWhileThatPays(t *testing.T) {
	onRedis(t, func(r *rig) {
		sets := r.calls("set")
		m, lease := r.waitOften(33)
		check.AtMost(r, r.calls("set")-sets, 16, "SET of 33 waits for a lock that stays held")
		r.must(lease.Unlock(ctx))
		scripts := r.calls("evalsha")
		for range 50 {
			r.must(pass(m))
		}
		check.AtMost(r, r.calls("evalsha")-scripts, 50+20, "50 cycles of a free lock called scripts")
	})
	inBubble(t, func(r *rig) { // after a SET NX that was refused, the process registers at once
		began := time.Now()
		_, lease := r.waitOften(33)
		check.AtMost(r, time.Since(began), time.Second, "33 waits took until they had registered")
		r.must(lease.Unlock(ctx))
	})
}

// The clients of one process share a registration, or writers a claim. Each of them gets its turn
// at once.
func TestTheClientsOfAProcessShareARegistration(t *testing.T) {
	inBubble(t, func(r *rig) {
		for kind, processes := range map[string]int{"mutex": 2, "writer": 3} { // of the writers, one claims
			lease := r.locked(kinds[kind](r.client(lock.Config{}), "orders", lock.Options{}))
			clients := make([]*client, processes)
			for i := range clients {
				clients[i], _ = r.process(fmt.Sprint(i))
			}
			var all sync.WaitGroup
			holds := 10 * processes
			for i := range holds {
				all.Go(func() {
					lease := r.lock(kinds[kind](clients[i%processes].As(fmt.Sprint(i/3)), "orders", lock.Options{}))
					time.Sleep(10 * time.Millisecond)
					r.must(lease.Unlock(ctx))
				})
			}
			time.Sleep(100 * time.Millisecond)
			r.registered(2)
			released := time.Now()
			r.must(lease.Unlock(ctx))
			all.Wait()
			check.AtMost(r, time.Since(released), time.Duration(holds)*10*time.Millisecond, "%s: %d holds of 10 ms took", kind, holds)
			time.Sleep(2 * time.Second)
			r.registered(0)
			check.Equal(r, r.rdb.Exists(ctx, "orders").Val(), 0, "%s: left behind", kind)
		}
	})
}

// A fair waiter behind a mutex registers like one for a mutex. If it leaves, a release
// wakes the next process.
func TestAFairWaiterThatLeavesDoesNotKeepAWakeUp(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := lock.Options{TTL: time.Minute}
		holder, _ := r.process("holder")
		leaver, link := r.process("leaver")
		c, _ := r.process("next")
		for way, giveUp := range map[string]func(cancel func()){
			"while it waits": func(cancel func()) { cancel() },
			"when its connection has broken": func(cancel func()) {
				link.Freeze()
				cancel()
				link.Cut()
				link.Thaw()
			},
		} {
			lease := r.locked(holder.Mutex("orders", o))
			short, cancel := context.WithCancel(ctx)
			left := lockAsync(short, leaver.Fair("orders", o))
			r.registered(1)
			next := lockAsync(ctx, c.Mutex("orders", o))
			r.registered(2)
			giveUp(cancel)
			<-left.done
			time.Sleep(500 * time.Millisecond) // the leaver is subscribed yet
			r.passesOn(lease, next, 0, "%s: the next process got the lock after", way)

			// A fair waiter that acquires when the mutex has expired leaves, too.
			r.must(r.rdb.Set(ctx, "orders", "crashed", time.Second).Err())
			lease = r.won(lockAsync(ctx, leaver.Fair("orders", o)))
			time.Sleep(100 * time.Millisecond)
			if left := r.rdb.ZRange(ctx, waitersKey, 0, -1).Val(); len(left) > 0 {
				r.Errorf("%s: without a waiter %q are registered", way, left)
			}
			r.must(lease.Unlock(ctx))
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
		check.Equal(r, r.rdb.ZCard(ctx, waitersKey).Val(), 1, "processes registered 2 s after the loss")
		time.Sleep(time.Minute)
		r.registered(1)
		link.Freeze()
		time.Sleep(16 * time.Second)
		check.Equal(r, r.rdb.ZCard(ctx, waitersKey).Val(), 0, "a dead process is registered after 16 s")
		r.must(lease.Unlock(ctx))
		stop()
		<-next.done
	})
}

// Also the processes that are not among the next two stay registered, however long they wait.
func TestAllRegistrationsLastAsLongAsTheirProcessesWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		lease := r.locked(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		const processes = 5
		var all sync.WaitGroup
		for i := range processes {
			c, _ := r.process(fmt.Sprint(i))
			all.Go(func() { r.must(pass(c.Mutex("orders", lock.Options{}))) })
		}
		r.registered(processes)
		for s := range testtier.Size(60, 600, 600) {
			time.Sleep(time.Second)
			n := r.rdb.ZCard(ctx, waitersKey).Val()
			check.Require(r, n == processes, "%d processes are registered after %d s, want %d", n, s, processes)
		}
		released := time.Now()
		r.must(lease.Unlock(ctx))
		all.Wait()
		check.AtMost(r, time.Since(released), 0, "%d hand-offs took", processes)
	})
}

// A user without permission for the waiters can use the lock. A release then wakes all
// processes.
func TestWithoutPermissionForTheWaitersAReleaseWakesAll(t *testing.T) {
	for _, name := range []string{"mutex", "writer"} {
		of := func(c *client) lock.Locker { return kinds[name](c, "orders", lock.Options{}) }
		sub(t, name, onRedis, func(r *rig) {
			var clients [3]*client
			for i := range clients {
				clients[i] = r.user("~orders", "+@all")
			}
			_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
			lease := r.locked(of(clients[0]))
			var all sync.WaitGroup
			for _, c := range clients[1:] {
				all.Go(func() { r.must(pass(of(c))) })
			}
			r.untilListening("orders", 2)
			listener := r.hear("{orders}:free")
			r.must(lease.Unlock(ctx))
			if name == "mutex" { // a claim has the message sent to one process
				message, err := listener.ReceiveMessage(ctx)
				check.True(r, err == nil && message.Payload == "orders", "got %v, %v; want the release", message, err)
			}
			all.Wait()
			check.Equal(r, strings.Join(r.rdb.Keys(ctx, "*").Val(), " "), "", "the server has")
		})
	}
}

// A holder whose user may not publish frees the lock and leaves the waiters where they
// are: they look by themselves.
func TestAHolderThatMayNotPublishKeepsTheWaitersRegistered(t *testing.T) {
	onRedis(t, func(r *rig) {
		if r.rdb.ACLSetUser(ctx, "plain", "resetchannels").Err() != nil {
			r.Skip("Redis 6.0 has no channel permissions")
		}
		c := r.user("~*", "+@all", "resetchannels")
		r.ghostProcess(0, true)
		for _, member := range []string{"ghost~000000000001", "ghost~01a20858-6c71-7eec-bac6-000000000001"} {
			r.must(r.rdb.Del(ctx, waitersKey).Err())
			r.must(r.rdb.ZAdd(ctx, waitersKey, redis.Z{Score: 1763900000123456, Member: member}).Err())
			for _, kind := range wakingOneKinds {
				r.must(r.locked(kinds[kind](c, "orders", lock.Options{})).Unlock(ctx))
				waiting := r.rdb.ZRangeWithScores(ctx, waitersKey, 0, -1).Val()
				check.True(r, len(waiting) == 1 && waiting[0] == (redis.Z{Score: 1763900000123456, Member: member}),
					"%s: after the release %v are registered, want %s", kind, waiting, member)
				check.True(r, r.rdb.Exists(ctx, "orders").Val() == 0, "%s: it is handed to %s, whose process does not know", kind, member)
			}
		}
	})
}

// Writers of a read/write lock: the first one that waits claims to be next, and the
// others register.

// A release wakes one waiting writer, in the order in which the processes came. The
// readers that wait are woken all together when a writer leaves.
func TestAReleaseWakesOneWriter(t *testing.T) {
	alone(t)
	onBoth(t, func(r *rig) {
		check.Equal(r, r.wakesOne("writer", "reader", 34), upTo(testtier.Size(8, 20, 20)), "served in the order")
	})
}

// Processes that come back right after each release do not claim before the registered
// ones: each of ten gets its turn after at most nine others.
func TestWritersThatComeBackAtOnceWaitTheirTurn(t *testing.T) {
	inBubble(t, func(r *rig) {
		const processes = 10
		least := testtier.Size(90, 900, 900)
		var mu sync.Mutex
		var holds int
		var last [processes]int
		var stopped atomic.Bool
		var all sync.WaitGroup
		for i := range processes {
			c, _ := r.process(fmt.Sprint(i))
			all.Go(func() {
				for !stopped.Load() {
					lease := r.lock(c.RW("orders", lock.Options{}).Writer())
					mu.Lock()
					holds++
					others := holds - last[i] - 1
					check.True(r, last[i] <= 0 || others <= processes-1, "process %d got the lock after %d others", i, others)
					last[i] = holds
					mu.Unlock()
					time.Sleep(time.Millisecond)
					r.must(lease.Unlock(ctx))
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Duration(least) * time.Second / 900)
		stopped.Store(true)
		all.Wait()
		check.AtLeast(r, holds, least, "holds of 1 ms")
		r.gone("orders")
	})
}

// A dead process is not woken by a writer that finds readers and no claim.
func TestADeadWriterIsNotWoken(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.client(lock.Config{})
		c, _ := r.process("next")
		read := r.locked(near.RW("orders", lock.Options{}).Reader())
		r.ghostProcess(1, false)
		next := lockAsync(ctx, c.RW("orders", lock.Options{}).Writer())
		time.Sleep(time.Millisecond)
		r.refused(near.RW("orders", lock.Options{}).Reader()) // the ghost has not got the claim
		time.Sleep(10 * time.Second)
		r.refused(near.RW("orders", lock.Options{}).Reader())
		r.passesOn(read, next, 0, "the next writer got the lock after")
		r.gone("orders")
	})
}

// Scenario 38: dead processes cost the waiter behind them no time, also while a client subscribes to a
// pattern, as an observer of all locks does: PUBLISH counts the observer for each of them.
func TestDeadWaitersArePassedOverWhileAnObserverListens(t *testing.T) {
	const dead = 5
	for kind, registered := range map[string]int64{"mutex": dead, "reentrant": dead, "semaphore": dead, "all": dead, "writer": dead - 1, "fair": 0} {
		sub(t, kind, inBubble, func(r *rig) {
			near := r.client(lock.Config{})
			ear := r.rdb.PSubscribe(ctx, "*")
			r.Cleanup(func() { ear.Close() })
			check.Must(ear.Receive(ctx))(r)
			lease := r.locked(kinds[kind](near, "orders", lock.Options{TTL: time.Minute}))
			doomed, kill := context.WithCancel(ctx)
			var ended []*await
			for i := range dead {
				c, link := r.process(fmt.Sprint("dead-", i))
				ended = append(ended, lockAsync(doomed, kinds[kind](c, "orders", lock.Options{})))
				time.Sleep(10 * time.Millisecond)
				link.Refuse(errors.New("the process has died"))
				link.Cut()
			}
			r.registered(registered)
			c, _ := r.process("living")
			next := lockAsync(ctx, kinds[kind](c, "orders", lock.Options{}))
			time.Sleep(10 * time.Millisecond)
			r.passesOn(lease, next, 0, "the living waiter got the lock after")
			kill()
			for _, w := range ended {
				<-w.done
			}
		})
	}
}

// Several writers before a live one are stopped, or dead. The server knows that a process
// is dead: its connection is closed.
func TestWritersThatAreStoppedOrDeadDelayTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(link *netfault.Network)
		others int // besides the one that is next
		within time.Duration
	}{
		"one is stopped":   {(*netfault.Network).Freeze, 0, time.Second},
		"four are stopped": {(*netfault.Network).Freeze, 3, 2 * time.Second},
		"one is dead":      {(*netfault.Network).Cut, 0, 0},
		"four are dead":    {(*netfault.Network).Cut, 3, 0},
	} {
		sub(t, name, inBubble, func(r *rig) {
			near := r.client(lock.Config{})
			write := r.locked(near.RW("orders", lock.Options{TTL: time.Minute}).Writer())
			doomed, kill := context.WithCancel(ctx)
			var links []*netfault.Network
			var waiting []*await
			wait := func(ctx context.Context) *await {
				c, link := r.process(fmt.Sprint(len(links)))
				links = append(links, link)
				w := lockAsync(ctx, c.RW("orders", lock.Options{}).Writer())
				r.claimed("orders")
				r.registered(int64(len(links) - 1))
				return w
			}
			for range 1 + c.others {
				waiting = append(waiting, wait(doomed))
			}
			next := wait(ctx)
			time.Sleep(10 * time.Second)
			for _, link := range links[:len(links)-1] {
				link.Refuse(errors.New("gone"))
				c.end(link)
			}
			synctest.Wait()
			r.passesOn(write, next, c.within, "the live writer got the lock after")
			kill()
			for _, w := range waiting {
				<-w.done
			}
		})
	}
}

// The last waiting writer of a process gives up: if it was next, the first registered
// writer is next at once, and readers stay out. If it was registered, it is not any more.
func TestAWriterThatGivesUpPassesTheClaimOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.client(lock.Config{})
		read := r.locked(near.RW("orders", lock.Options{TTL: time.Minute}).Reader())
		var calls []*await
		var stops []context.CancelFunc
		for i := range 3 {
			short, stop := context.WithCancel(ctx)
			c, _ := r.process(fmt.Sprint("writer", i))
			stops = append(stops, stop)
			calls = append(calls, lockAsync(short, c.RW("orders", lock.Options{}).Writer()))
			if r.claimed("orders"); i > 0 {
				r.registered(int64(i))
			}
		}
		stops[1]()
		<-calls[1].done
		r.registered(1)
		stops[0]()
		<-calls[0].done
		time.Sleep(time.Millisecond) // for background work
		check.Contains(r, r.field("orders", "q"), ":writer2~", "the claim after the next writer has given up")
		r.registered(0)
		for range 20 { // the claim is renewed
			r.refused(near.RW("orders", lock.Options{}).Reader())
			time.Sleep(time.Second)
		}
		r.passesOn(read, calls[2], 0, "the next writer got the lock after")
		stops[2]()
		r.gone("orders")
	})
}

// The lock was handed to a waiter, and the reply to its claim is lost. The undo of this
// attempt does not take the lock from the next one.
func TestTheUndoOfALostClaimDoesNotReleaseTheNextAttempt(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	inBubble(t, func(r *rig) {
		for _, kind := range []string{"mutex", "all"} {
			for range 20 {
				near, _ := r.process("greedy")
				c, link := r.process("patient")
				o := lock.Options{TTL: time.Minute, Renew: lock.Renew{Off: true}}
				greedy := near.Mutex("orders", o)
				lease := r.locked(greedy)
				waiting := lockAsync(ctx, kinds[kind](c, "orders", o))
				r.registered(1)
				link.Delay(func() time.Duration { return time.Millisecond })
				lease = r.passOver(9, greedy, lease)
				time.Sleep(5 * time.Millisecond)
				r.must(lease.Unlock(ctx))
				r.refused(greedy) // handed over
				time.Sleep(1500 * time.Microsecond)
				link.FreezeReplies() // the claim arrives, its reply does not
				time.Sleep(5 * time.Millisecond)
				link.Cut()
				link.Thaw()
				lease = r.won(waiting)
				time.Sleep(5 * time.Second)
				if lease.Valid() {
					r.holds("orders", lease.Token())
				}
				r.must(lease.Unlock(ctx))
				r.must(c.Close())
			}
		}
	})
}

// Close does not wait until the first waiter is connected for messages.
func TestCloseEndsTheConnectOfTheFirstWaiter(t *testing.T) {
	onRedis(t, func(r *rig) {
		lease := r.locked(r.near().Mutex("orders", lock.Options{}))
		dials := make(chan struct{}, 100)
		r.dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials <- struct{}{}
			if len(dials) == 1 {
				return r.rdb.Options().Dialer(ctx, network, addr)
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return nil, os.ErrDeadlineExceeded
			}
		})
		c := r.client(lock.Config{})
		go c.Mutex("orders", lock.Options{}).Lock(ctx)
		r.until("a connect for messages", func() bool { return len(dials) > 1 })
		began := time.Now()
		r.must(c.Close())
		took := time.Since(began)
		check.False(r, tooLate(took, 5*time.Second), "closed after %s", took)
		r.must(lease.Unlock(ctx))
	})
}
