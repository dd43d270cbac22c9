package lock

import "testing"

// told reports whether a waiter was woken, and takes the news from it.
func told(me *place) bool {
	select {
	case <-me.news:
		return true
	default:
		return false
	}
}

func TestNewsWakesTheFrontAlone(t *testing.T) {
	l := &line{}
	front, next := l.join(""), l.join("")
	l.news()
	if !told(front) || told(next) {
		t.Error("want the front woken and nobody else")
	}
}

func TestNewsThatComesWhileTheFrontTriesIsKept(t *testing.T) {
	l := &line{}
	front := l.join("")
	l.news()
	told(front) // it is trying now
	l.news()
	l.news()
	if !told(front) || told(front) {
		t.Error("want one more try")
	}
}

func TestASubscriptionWakesTheFront(t *testing.T) {
	l := &line{channel: "free"}
	front := l.join("")
	if l.hears() {
		t.Error("hears before it is subscribed")
	}
	l.confirmed("free")
	if !l.hears() || !told(front) {
		t.Error("want the front to look for what came before the subscription")
	}
}

func TestWhoLeavesWithoutTheLockWakesTheNext(t *testing.T) {
	for name, c := range map[string]struct{ won, pending, wake bool }{
		"gave up with news":    {won: false, pending: true, wake: true},
		"gave up having tried": {won: false, pending: false, wake: true}, // its try may never have been answered
		"won":                  {won: true, pending: false, wake: false},
		"won with more news":   {won: true, pending: true, wake: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &line{}
			front, next := l.join(""), l.join("")
			if c.pending {
				l.news()
			}
			l.leave(front, c.won)
			if told(next) != c.wake {
				t.Errorf("the next one was woken: %v, want %v", !c.wake, c.wake)
			}
		})
	}
}

func TestWhoJoinsALineThatListensLooksOnce(t *testing.T) {
	n := &notifier{lines: map[string]*line{"free": {heard: true}}, changed: make(chan struct{}, 1), started: true}
	turn := &turn{}
	if _, me := turn.join(n, "free"); !told(me) {
		t.Error("what came between the try and the queue is missed")
	}
	if _, me := turn.rejoin(); told(me) {
		t.Error("an early place in the queue misses nothing: no need to look")
	}
}

func TestAHandOverWakesTheOneItNames(t *testing.T) {
	const named, stranger = "a~0199f3a4-6f00-7000-8000-000000000001", "b~0199f3a4-6f00-7000-8000-000000000002"
	l := &line{channel: "free"}
	front, me := l.join(""), l.join(named)
	l.hear("free:ours", named)
	if told(front) || !told(me) {
		t.Error("want the named one woken, and nobody else")
	}
	l.hear("free:ours", stranger)
	if told(front) || told(me) {
		t.Error("woken by what was handed to one who has left")
	}
	l.hear("free", "some:key")
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
		if got := name(key, "free"); got != want {
			t.Errorf("name(%q) = %q, want %q", key, got, want)
		}
	}
}
