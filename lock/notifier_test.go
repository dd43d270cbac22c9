package lock

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// inSelect reports whether a goroutine that runs a function waits in a select.
func inSelect(function string) bool {
	stacks := make([]byte, 1<<20)
	for _, one := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		state, _, _ := strings.Cut(one, "\n")
		if strings.Contains(state, "[select") && strings.Contains(one, function) {
			return true
		}
	}
	return false
}

// A client may be closed while more messages arrive than the channel of go-redis holds.
func TestACloseWithManyMessagesLeavesNoGoroutine(t *testing.T) {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: servertest.RedisForTest(t).Addr()})
	defer rdb.Close()
	const channel = "{k}:free"
	before := goleak.IgnoreCurrent()
	c := check.Must(New(rdb, Config{}))(t)
	n := &c.core.notifier
	q := n.use(channel, "")
	for deadline := time.Now().Add(10 * time.Second); !q.subscribed(); time.Sleep(time.Millisecond) {
		check.Require(t, !time.Now().After(deadline), "no confirmation of the subscription")
	}
	n.mu.Lock() // the listener waits for it with its first message
	pipe := rdb.Pipeline()
	for range 1000 {
		pipe.Publish(ctx, channel, strings.Repeat("x", 10))
	}
	check.Must(pipe.Exec(ctx))(t)
	for deadline := time.Now().Add(10 * time.Second); !inSelect("initAllChan"); time.Sleep(time.Millisecond) {
		check.Require(t, !time.Now().After(deadline), "the channel of go-redis is not full")
	}
	c.core.stop()
	n.mu.Unlock()
	check.NoError(t, c.Close())
	_ = rdb.Close() // its connections have goroutines, too
	err := goleak.Find(before)
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(before)
	}
	check.ErrorIs(t, err, nil)
}

// subscriptions is what a server knows of the requests of a notifier.
type subscriptions map[string]bool

// apply has the server process the requests, in their order.
func (s subscriptions) apply(requests []subscriptionRequest) {
	for _, r := range requests {
		for _, channel := range r.channels {
			if r.subscribe {
				s[channel] = true
			} else {
				delete(s, channel)
			}
		}
	}
}

// Scenario 48. Users come and go at any time, and the requests are sent at any time.
func TestAQueueReceivesMessagesWhileItHasUsers(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			choose := rand.New(rand.NewPCG(seed, 0))
			alive, stop := context.WithCancel(context.Background())
			defer stop()
			n := &notifier{started: true}
			n.init(&core{alive: alive})
			server := subscriptions{}
			used := map[*waitQueue]int{}
			for step := range 300 {
				switch choose.IntN(4) {
				case 0:
					k := strconv.Itoa(choose.IntN(2))
					q := n.use("free"+k, "free"+k+":ours")
					used[q]++
				case 1:
					for q := range used {
						n.endUse(q)
						if used[q]--; used[q] == 0 {
							delete(used, q)
						}
						break
					}
				case 2:
					server.apply(n.takeRequests())
				case 3:
					time.Sleep(time.Duration(choose.IntN(3)) * unsubscribeDelay / 2)
					synctest.Wait()
				}
				for q := range used {
					check.Require(t, n.queue(q.channel) == q && n.queue(q.processChannel) == q,
						"seed %d, step %d: messages do not reach the queue of %s, which has users", seed, step, q.channel)
				}
			}
			server.apply(n.takeRequests())
			for q := range used {
				check.Require(t, server[q.channel] && server[q.processChannel], "seed %d: %s has users and is not subscribed", seed, q.channel)
				for range used[q] {
					n.endUse(q)
				}
			}
			time.Sleep(unsubscribeDelay)
			synctest.Wait()
			server.apply(n.takeRequests())
			check.Require(t, len(server) == 0 && len(n.queues) == 0,
				"seed %d: nobody waits: the server has %v, the process %v", seed, server, n.queues)
		})
	}
}

// The next user of a contended lock often comes soon.
func TestAQueueThatWasUsedWithinTheDelayStaysSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notifier{started: true}
		n.init(&core{alive: context.Background()})
		for range 5 {
			n.endUse(n.use("free", ""))
			time.Sleep(unsubscribeDelay - time.Nanosecond)
			synctest.Wait()
		}
		r := n.takeRequests()
		check.True(t, len(r) == 1 && r[0].subscribe, "requests %v, want one SUBSCRIBE", r)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if r := n.takeRequests(); len(r) != 1 || r[0].subscribe {
			t.Errorf("requests %v after the delay, want one UNSUBSCRIBE", r)
		}
	})
}

// A timer may run when its queue was used meanwhile, or is dropped already.
func TestATimerThatRunsLateDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notifier{started: true}
		n.init(&core{alive: context.Background()})
		q := n.use("free", "")
		n.endUse(q)
		n.dropIdle(q)
		check.Equal(t, n.queue("free"), q, "a queue was dropped before its delay was over")
		time.Sleep(2 * unsubscribeDelay)
		next := n.use("free", "")
		n.dropIdle(q)
		check.True(t, next != q && n.queue("free") == next, "a dropped queue has taken the next one with it")
	})
}

// woken reports whether a waiter was woken, and consumes the wake-up.
func woken(w *waiter) bool {
	select {
	case <-w.wakeup:
		return true
	default:
		return false
	}
}

func TestAMessageDuringAnAttemptCausesOneMoreAttempt(t *testing.T) {
	q := &waitQueue{}
	first := q.join(false)
	q.wakeFirst()
	woken(first) // it tries now
	q.wakeFirst()
	q.wakeFirst()
	check.True(t, woken(first) && !woken(first), "want one more attempt")
}

func TestAWaiterThatLeavesWithoutTheLockWakesTheNext(t *testing.T) {
	for name, c := range map[string]struct{ won, pending, wake bool }{
		"gave up before its attempt": {won: false, pending: true, wake: true},
		"gave up after its attempt":  {won: false, pending: false, wake: true}, // the server may not have answered
		"won":                        {won: true, pending: false, wake: false},
		"won with another message":   {won: true, pending: true, wake: true},
	} {
		t.Run(name, func(t *testing.T) {
			q := &waitQueue{}
			first, next := q.join(false), q.join(false)
			if c.pending {
				q.wakeFirst()
			}
			q.leave(first, c.won)
			check.Equal(t, woken(next), c.wake, "the next one was woken")
		})
	}
}

func TestAWaiterThatJoinsASubscribedQueueTriesOnce(t *testing.T) {
	n := &notifier{queues: map[string]*waitQueue{"free": {freeConfirmed: true}}, started: true}
	local := &localQueue{}
	_, w := local.subscribe(n, "free", "")
	check.True(t, woken(w), "a message between the attempt and the queue is lost")
	if _, w := local.reuseSubscription(n, ""); woken(w) {
		t.Error("a waiter that joined before its attempt was woken without a message")
	}
}

func TestCompanionKeysShareTheSlotOfTheirLock(t *testing.T) {
	for key, want := range map[string]string{
		"orders":        "{orders}:free",
		"{shop}:orders": "{shop}:orders::free",
		"a{b}c":         "a{b}c::free",
		"a{}b":          "{a{}b}:free",
		"":              "{}:free",
	} {
		check.Equal(t, companionKey(key, "free"), want, "companionKey(%q)", key)
	}
}

// A process that did not claim the lock a moment ago is stopped; of one that was handed it earlier nothing is known.
func TestOnlyALateClaimantIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &waitQueue{}
		check.Equal(t, q.claimant(), "", "without a hand-over")
		q.noteClaimant("process-1")
		time.Sleep(claimTimeout + time.Millisecond)
		check.Equal(t, q.claimant(), "process-1", "when the time to claim is over")
		time.Sleep(claimTimeout)
		check.Equal(t, q.claimant(), "", "later")
	})
}
