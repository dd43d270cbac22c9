package lock

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"locktop/server"
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
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr()})
	defer rdb.Close()
	const channel = "{k}:free"
	before := goleak.IgnoreCurrent()
	c, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	n := &c.core.notifier
	q := n.use(channel, "")
	for deadline := time.Now().Add(10 * time.Second); !q.subscribed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no confirmation of the subscription")
		}
	}
	n.mu.Lock() // the listener waits for it with its first message
	pipe := rdb.Pipeline()
	for range 1000 {
		pipe.Publish(ctx, channel, strings.Repeat("x", 10))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !inSelect("initAllChan"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the channel of go-redis is not full")
		}
	}
	c.core.stop()
	n.mu.Unlock()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_ = rdb.Close() // its connections have goroutines, too
	err = goleak.Find(before)
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(before)
	}
	if err != nil {
		t.Error(err)
	}
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

func TestAMessageWakesTheFirstWaiterOnly(t *testing.T) {
	q := &waitQueue{}
	first, next := q.join(""), q.join("")
	q.wakeFirst()
	if !woken(first) || woken(next) {
		t.Error("want only the first waiter woken")
	}
}

func TestAMessageDuringAnAttemptCausesOneMoreAttempt(t *testing.T) {
	q := &waitQueue{}
	first := q.join("")
	q.wakeFirst()
	woken(first) // it tries now
	q.wakeFirst()
	q.wakeFirst()
	if !woken(first) || woken(first) {
		t.Error("want one more attempt")
	}
}

// A release before the confirmation has sent no message to this process.
func TestAConfirmedSubscriptionWakesTheFirstWaiter(t *testing.T) {
	q := &waitQueue{channel: "free"}
	first := q.join("")
	if q.subscribed() {
		t.Error("the queue is subscribed before the confirmation")
	}
	q.onSubscribed("free")
	if !q.subscribed() || !woken(first) {
		t.Error("want the queue subscribed and the first waiter woken")
	}
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
			first, next := q.join(""), q.join("")
			if c.pending {
				q.wakeFirst()
			}
			q.leave(first, c.won)
			if woken(next) != c.wake {
				t.Errorf("the next one was woken: %v, want %v", !c.wake, c.wake)
			}
		})
	}
}

func TestAWaiterThatJoinsASubscribedQueueTriesOnce(t *testing.T) {
	n := &notifier{queues: map[string]*waitQueue{"free": {freeConfirmed: true}}, changed: make(chan struct{}, 1), started: true}
	local := &localQueue{}
	if _, w := local.subscribe(n, "free", ""); !woken(w) {
		t.Error("a message between the attempt and the queue is lost")
	}
	if _, w := local.reuseSubscription(n, ""); woken(w) {
		t.Error("a waiter that joined before its attempt was woken without a message")
	}
}

func TestAHandOverWakesTheWaiterWithTheToken(t *testing.T) {
	const token, gone = "a~0199f3a4-6f00-7000-8000-000000000001", "b~0199f3a4-6f00-7000-8000-000000000002"
	q := &waitQueue{channel: "free"}
	first, next := q.join(""), q.join(token)
	q.onMessage("free:ours", token)
	if woken(first) || !woken(next) {
		t.Error("want only the waiter with the token woken")
	}
	q.onMessage("free:ours", gone)
	if woken(first) || woken(next) {
		t.Error("a hand-over to a waiter that has left woke another one")
	}
	q.onMessage("free", "some:key")
	if !woken(first) || woken(next) {
		t.Error("want the first waiter woken when the lock is free")
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
		if got := companionKey(key, "free"); got != want {
			t.Errorf("companionKey(%q) = %q, want %q", key, got, want)
		}
	}
}
