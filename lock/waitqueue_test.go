package lock

import "testing"

// told reports whether a waiter was woken, and consumes the wake-up.
func told(me *waiter) bool {
	select {
	case <-me.wakeup:
		return true
	default:
		return false
	}
}

func TestNewsWakesTheFrontAlone(t *testing.T) {
	l := &waitQueue{}
	front, next := l.join(""), l.join("")
	l.wakeFirst()
	if !told(front) || told(next) {
		t.Error("want only the first waiter woken")
	}
}

func TestNewsThatComesWhileTheFrontTriesIsKept(t *testing.T) {
	l := &waitQueue{}
	front := l.join("")
	l.wakeFirst()
	told(front) // front tries now
	l.wakeFirst()
	l.wakeFirst()
	if !told(front) || told(front) {
		t.Error("want one more try")
	}
}

func TestASubscriptionWakesTheFront(t *testing.T) {
	l := &waitQueue{channel: "free"}
	front := l.join("")
	if l.subscribed() {
		t.Error("hears before it is subscribed")
	}
	l.onSubscribed("free")
	if !l.subscribed() || !told(front) {
		t.Error("want the front to look for what came before the subscription")
	}
}

func TestWhoLeavesWithoutTheLockWakesTheNext(t *testing.T) {
	for name, c := range map[string]struct{ won, pending, wake bool }{
		"gave up with news":    {won: false, pending: true, wake: true},
		"gave up having tried": {won: false, pending: false, wake: true}, // the server may not have answered its attempt
		"won":                  {won: true, pending: false, wake: false},
		"won with more news":   {won: true, pending: true, wake: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &waitQueue{}
			front, next := l.join(""), l.join("")
			if c.pending {
				l.wakeFirst()
			}
			l.leave(front, c.won)
			if told(next) != c.wake {
				t.Errorf("the next one was woken: %v, want %v", !c.wake, c.wake)
			}
		})
	}
}

func TestWhoJoinsALineThatListensLooksOnce(t *testing.T) {
	n := &notifier{queues: map[string]*waitQueue{"free": {freeConfirmed: true}}, changed: make(chan struct{}, 1), started: true}
	turn := &localQueue{}
	if _, me := turn.subscribe(n, "free"); !told(me) {
		t.Error("what came between the try and the queue is missed")
	}
	if _, me := turn.reuseSubscription(); told(me) {
		t.Error("an early place in the queue misses nothing: no need to look")
	}
}

func TestAHandOverWakesTheOneItNames(t *testing.T) {
	const named, stranger = "a~0199f3a4-6f00-7000-8000-000000000001", "b~0199f3a4-6f00-7000-8000-000000000002"
	l := &waitQueue{channel: "free"}
	front, me := l.join(""), l.join(named)
	l.onMessage("free:ours", named)
	if told(front) || !told(me) {
		t.Error("want only the named waiter woken")
	}
	l.onMessage("free:ours", stranger)
	if told(front) || told(me) {
		t.Error("woken by what was handed to one who has left")
	}
	l.onMessage("free", "some:key")
	if !told(front) || told(me) {
		t.Error("want the front woken when the lock is free")
	}
}

func TestKeysHashLikeTheirCompanions(t *testing.T) {
	for key, want := range map[string]string{
		"orders":        "{orders}:free",
		"{shop}:orders": "{shop}:orders::free",
		"a{b}c":         "a{b}c::free",
		"a{}b":          "{a{}b}:free",
		"":              "{}:free",
	} {
		if got := companionKey(key, "free"); got != want {
			t.Errorf("name(%q) = %q, want %q", key, got, want)
		}
	}
}
