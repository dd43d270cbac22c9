package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestAnEventNamesTheClientThatTookALock(t *testing.T) {
	l := mutex("a", "thief-1", time.Minute)
	events := []keyspace.Event{
		{At: before(0), Kind: keyspace.Stolen, Lock: l, Holder: keyspace.Holder{ID: "victim-1"}, Held: time.Second},
		{At: before(0), Kind: keyspace.Lost, Lock: mutex("b", "unlucky-1", time.Minute), Holder: keyspace.Holder{ID: "unlucky-1"}},
	}
	next := mutex("c", "next-1", time.Minute)
	events = append(events, keyspace.Event{At: before(0), Kind: keyspace.Replaced, Lock: next, Holder: keyspace.Holder{ID: "last-1"}})
	drive(t, Config{Source: holding(l).watched(keyspace.Push, &events)}, func(d *driver) {
		d.size(160, 40).wait(time.Second).press("6").want("1 stolen", "1 lost", "taken by thief-1", "then next-1")
		d.wantLine("taken by", "stolen", "victim-1")
	})
}

func TestASemaphoreShowsItsPermits(t *testing.T) {
	l := mutex("pool", "web-1", time.Minute)
	l.Kind, l.Limit = keyspace.Semaphore, 3
	l.Holders = append(l.Holders, keyspace.Holder{ID: "web-2", Depth: 1})
	drive(t, Config{Source: holding(l)}, func(d *driver) {
		d.want(" 2/3 ").size(140, 40).want("DEPTH", " 2/3 ").press("enter").want("2 of 3 permits in use")
	})
}

func TestThePageOfALockShowsTheProcessOfItsHolder(t *testing.T) {
	l := mutex("a", "token", time.Minute)
	l.Holders[0].Label, l.Holders[0].Addr = "web-1:4711", "10.2.3.4:52312"
	drive(t, Config{Source: holding(l, mutex("b", "token-2", time.Minute))}, func(d *driver) {
		d.wait(time.Second).press("enter")
		d.want("holder    web-1:4711 · process 4711 on web-1, if that is a host · connected from 10.2.3.4:52312")
		d.press("p").want("connected from", "node-").wantNot("10.2.3.4", "web-1")
	})
}

// Without a watch that reads every change at once, the length of a lease is not known, and the page does not invent it.
func TestThePageOfALockShowsTheLengthOfALeaseOnlyIfItIsKnown(t *testing.T) {
	for _, mode := range []keyspace.WatchMode{"", keyspace.Polling, keyspace.Notifications, keyspace.Push} {
		l := mutex("a", "first", 20*time.Second)
		v := holding(l)
		var events []keyspace.Event
		drive(t, Config{Source: v.watched(mode, &events)}, func(d *driver) {
			d.wait(time.Second).press("enter").want("left").wantNot("left of")
			renewed := mutex("a", "first", time.Minute)
			renewed.Renewals, renewed.Renewed = 1, time.Now()
			renewed.Expires = time.Now().Add(30*time.Second - 20*time.Millisecond)
			renewed.Holders[0].Expires = renewed.Expires
			v.locks = []keyspace.Lock{renewed}
			events = []keyspace.Event{{At: time.Now(), Kind: keyspace.Renewed, Lock: renewed, Holder: renewed.Holders[0]}}
			d.wait(2 * time.Second)
			if known := mode == keyspace.Push || mode == keyspace.Notifications; known {
				d.want("s left of 30 s")
			} else {
				d.want("s left").wantNot("left of")
			}
		})
	}
}

// In one lane every owner has its own letter, also without colours: after 52 owners the letters repeat, but not there.
func TestOwnersOfOneLockHaveDifferentLetters(t *testing.T) {
	var c timeline
	begin := func(key, owner string, at time.Duration) {
		l := mutex(key, owner, time.Minute)
		c.add(keyspace.Delta{Snapshot: keyspace.Snapshot{At: after(at)}}, []keyspace.Event{
			{At: after(at), Kind: keyspace.Acquired, Lock: l, Holder: keyspace.Holder{ID: owner}},
			{At: after(at + time.Second), Kind: keyspace.Released, Lock: l, Holder: keyspace.Holder{ID: owner}},
		})
	}
	begin("a", "pay-1", 0)
	for i := range len(letters) - 1 {
		begin("b", fmt.Sprint("web-", i), 0)
	}
	begin("a", "pay-3", 2*time.Second) // number 52
	begin("a", "pay-1", 4*time.Second)
	a := keyspace.ID{Key: "a"}
	holds := c.lane(a, nil, after(0)).drawn()
	check.True(t, holds[0].letter != holds[1].letter && holds[0].letter == holds[2].letter && holds[1].owner == len(letters),
		"the letters of pay-1, pay-3 and pay-1 are %d %d %d", holds[0].letter, holds[1].letter, holds[2].letter)
	for i := range 2 * len(letters) { // the letter seen least recently is used again
		begin("a", fmt.Sprint("batch-", i), time.Duration(6+i)*time.Second)
	}
	recent := map[int]bool{}
	holds = c.lane(a, nil, after(0)).drawn()
	for _, h := range holds[len(holds)-len(letters):] {
		recent[h.letter] = true
	}
	check.True(t, len(recent) == len(letters), "the last %d owners have %d letters", len(letters), len(recent))
}

// fakeFinder lists the clients of a test, and ends each watch of a holder when the test says so.
type fakeFinder struct {
	clients []keyspace.Client
	err     error
	lists   int
	found   chan keyspace.Suspicion
	ended   int // watches
}

func (f *fakeFinder) Clients(context.Context, keyspace.Lock, []int64) ([]keyspace.Client, bool, error) {
	f.lists++
	return f.clients, true, f.err
}

func (f *fakeFinder) WatchHolder(ctx context.Context, _ keyspace.Lock, _ keyspace.Holder, _ []*keyspace.Lock) (keyspace.Suspicion, error) {
	defer func() { f.ended++ }()
	select {
	case found := <-f.found:
		return found, nil
	case <-ctx.Done():
		return keyspace.Suspicion{Changes: 1, Left: 3}, nil
	}
}

// chained returns a source with a chain of three locks.
func chained() Source {
	locks := []keyspace.Lock{mutex("chain:1", "svc-c:1", time.Hour), mutex("chain:2", "svc-d:1", time.Hour), mutex("chain:3", "svc-e:1", time.Hour)}
	locks[0].Waiters = []keyspace.Waiter{{ID: "svc-d:1", Since: before(111 * time.Second)}}
	locks[1].Waiters = []keyspace.Waiter{{ID: "svc-e:1"}, {ID: "svc-f:1"}}
	return &fakeServer{locks: locks}
}

func TestTheLockPageSaysWhetherTheLockIsStuck(t *testing.T) {
	f := &fakeFinder{clients: []keyspace.Client{
		{ID: 7, Addr: "10.0.3.17:51622", Name: "svc-c:1", Library: "lettuce\x1b[2J 6.3", Age: 3 * time.Hour, Idle: 2 * time.Second, Command: "evalsha"},
		{ID: 8, Addr: "10.0.3.18:4000", Name: "another"},
	}}
	w := testConfig()
	w.Source, w.Finder, w.Executor, w.Formats = chained(), f, &fakeExecutor{}, actionFormats()
	drive(t, w, func(d *driver) {
		lists := func(want int) {
			t.Helper()
			check.Require(t, f.lists == want, "the clients were listed %d times, want %d", f.lists, want)
		}
		d.wait(time.Second)
		d.size(140, 40).wantLine("▲ chain:1", "svc-c:1", " 10.0.3.17:51622 ").wantLine("chain:2", " ? ")
		d.press("/").enter("chain:1").press("enter").wait(tickInterval)
		d.press("y").want("p  process").press("p")
		check.Equal(t, d.copied, ": 'on 10.0.3.17'; ss -tnpH 'sport = :51622'", "copied")
		d.press("enter").wait(time.Second)
		lists(1)
		for _, size := range [][2]int{{80, 24}, {140, 40}} {
			d.size(size[0], size[1]).want("svc-c:1 · 10.0.3.17:51622, lettuce", `\x1b[2J`, "connected for 3 h", "idle 2.0 s after evalsha", "clients listed",
				"blocks    3 clients, 1 directly, the longest for 1 m 5", "waits for no other lock, as far as locktop sees: it is the root of the chain",
				"W find the client", "x r release it", "svc-c:1 · 10.0.3.17:51622 · held", "1  svc-d:1 · for 1 m 5").wantNot("another")
		}
		d.wait(5 * time.Second)
		lists(2)
		f.clients = append(f.clients[1:], keyspace.Client{ID: 9, Addr: "10.0.3.19:77", Name: "svc-d:1"})
		d.wait(5 * time.Second).want("1  svc-d:1 · 10.0.3.19:77 · for 2 m")
		f.clients = f.clients[:1]
		d.wait(5*time.Second).want("its connection 10.0.3.17:51622, lettuce", "closed between ").wantNot("Redis shows no connection")
		lists(4)
		d.press("p").want("node-", "blocks    3 clients").wantNot("svc-c", "svc-d", "10.0.3", "chain:")
		d.press("p", "esc").wantLine("▌", " closed ≥").press("esc", "/").enter("chain:3").press("enter", "enter").wait(time.Second)
		lists(4)
		d.want("Redis shows no connection of this holder: its value names none", "svc-e:1 waits for chain:2, which svc-d:1 holds; that owner waits for chain:1", "svc-c:1 is the root",
			"tree      chain:1, which svc-c:1 holds, blocks 3 clients, 1 directly", "            chain:2, which svc-d:1 holds, blocks 2 clients", "              chain:3, which svc-e:1 holds")
	})
}

// Without the permission, the page says so once, and does not ask again before a minute has passed.
func TestTheLockPageSaysThatItMayNotListClients(t *testing.T) {
	f := &fakeFinder{err: errors.New("this user may not run CLIENT LIST")}
	w := testConfig()
	w.Source, w.Finder = chained(), f
	drive(t, w, func(d *driver) {
		d.press("enter").wait(50*time.Second).want("connection not shown: this user may not run CLIENT LIST", "blocks ").wantNot("x r release")
		check.True(t, f.lists == 1, "it asked %d times in 50 s", f.lists)
	})
}

// W watches the lock until its client is known, the time is over, or the user leaves the page.
func TestAWatchFindsTheClientOfTheHolder(t *testing.T) {
	driveNew(t, func(*testing.T) Config {
		w := testConfig()
		w.Source, w.Finder = chained(), &fakeFinder{found: make(chan keyspace.Suspicion), clients: []keyspace.Client{{ID: 3, Addr: "10.1.1.1:99"}}}
		return w
	}, func(d *driver) {
		f := d.app.config.Finder.(*fakeFinder)
		d.press("/").enter("chain:1").press("enter", "enter").wait(tickInterval)
		d.press("W").wait(5*time.Second).want("looking for its client: 5.", "of 30 s").press("W").want("watched already")
		f.found <- keyspace.Suspicion{Client: keyspace.Client{ID: 3, Addr: "10.1.1.1:99", Command: "set"}, Changes: 3, Hits: 3, Left: 1, Named: true}
		d.settle().want("probably 10.1.1.1:99", "just when the lock changed, 3 of 3")
		f.clients = nil
		d.wait(11*time.Second).want("its connection 10.1.1.1:99 closed between ", "it was").wantNot("of 3")
		d.press("W").wait(31 * time.Second).want("not found in 30 s: 1 change, 3 clients are left")
		d.press("W", "esc").wait(time.Second)
		check.True(t, f.ended == 3, "%d of 3 watches have ended", f.ended)
		d.press("enter").wait(tickInterval).wantNot("not found in").press("<").want("blocks").wantNot("W find").press("W").want("this is the past")
	})
}

func TestTheLockPageShowsWhatIsStored(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.size(100, 60).press("j", "enter").wait(tickInterval)
		d.wantOrder("stored as", "lock:orders:4711 · hash · TTL", "holder = 3", "lock:orders:4711:queue · list · no TTL", "waiter-11", "and 28 more elements")
		d.wantNot("waiter-12").press("p").wantNot("stored as", "holder = 3")
	})
	w := testConfig()
	w.Store = func(ctx context.Context, l keyspace.Lock) []RawEntry {
		return append(storedHash(ctx, l), RawEntry{Node: "10.0.0.9:1", Err: errors.New("read keys: \x1b[31mNOPERM")})
	}
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("enter").wait(tickInterval).want("holder = 3", `not known · read keys: \x1b[31mNOPERM · 10.0.0.9:1`)
	})
}

func TestOneRawValueIsRequestedAtATime(t *testing.T) {
	w := testConfig()
	reads := 0
	w.Store = countingStore(&reads, 0)
	drive(t, w, func(d *driver) {
		d.wait(2 * time.Second)
		check.True(t, reads == 0, "%d were asked for while the table alone was shown", reads)
		d.press("enter").wait(30 * time.Second)
		check.True(t, reads >= 2 && reads <= 4, "asked %d times in 30 s, want once in 10 s", reads)
	})
}

// A read between two holds finds no key.
func TestAMissingKeyOfAHeldLockIsReadAgainSoon(t *testing.T) {
	w := testConfig()
	w.Store = countingStore(new(int), 1)
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("j", "enter").wait(tickInterval).wantOrder("stored as", "nothing: the key is gone")
		d.wait(2*tickInterval).wantOrder("stored as", "holder = 3")
	})
}

func TestTheLockPageShowsTheHoldTimes(t *testing.T) {
	v := sampleServer()
	w := testConfig()
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(100, 60).press("/").enter("sku9").press("enter", "enter").wantNot("since start ──")
		held := v.locks
		for range 3 {
			v.locks = held[:3]
			d.wait(2 * tickInterval)
			v.locks = held
			for i := range v.locks {
				if strings.Contains(v.locks[i].Key, "sku9") {
					v.locks[i].Holders[0].Since = time.Now()
				}
			}
			d.wait(4 * tickInterval)
		}
		d.want("since start", "held", "free", "p50", "owners", "9f3c2b1a ×3")
	})
}

func TestTheTargetCanBeChanged(t *testing.T) {
	var asked []Target
	var refused error
	w := testConfig()
	w.Connector = func(_ context.Context, v Target) (Config, error) {
		asked = append(asked, v)
		return Config{Source: holding(mutex("other", "x", time.Minute)), Title: "redis://127.0.0.1:6379/3"}, refused
	}
	drive(t, w, func(d *driver) {
		d.size(160, 45).press("t", ":").enter("db 3").press("enter").wait(2*tickInterval).want("1 lock ", "other", "6379/3").wantNot("nightly", "tagged")
		d.press(":").enter("match other*").press("enter").wait(tickInterval).want("other")
		check.DeepEqual(t, asked, []Target{{DB: "3"}, {Match: "other*"}}, "asked for")
		d.press(":").enter("db three").press("enter").want("a number from 0 on, or all")
		refused = errors.New("no database 99")
		d.press(":").enter("db 99").press("enter").wait(tickInterval).want("no database 99", "other")
	})
	drive(t, testConfig(), func(d *driver) { d.press(":").enter("db 3").press("enter").want("cannot be changed") })
}

// countingStore counts the reads. empty is the number of the read that finds no key, from 1.
func countingStore(reads *int, empty int) Store {
	return func(ctx context.Context, l keyspace.Lock) []RawEntry {
		if *reads++; *reads == empty {
			return nil
		}
		return storedHash(ctx, l)
	}
}

// The screen shows the command exactly as it copies it: backslashes of a key
// are not doubled as Plain does, and the flags of the connection are included.
func TestTheCommandIsShownAsItIsCopied(t *testing.T) {
	const key, line = `App\Jobs\it's`, `redis-cli -h 10.0.0.9 -p 6380 -n 3 --tls EVAL 'return 1' 1 'App\Jobs\it'\''s' me`
	w, _ := writeConfig()
	w.RedisCLI = []string{"--tls"}
	w.Source = &fakeServer{locks: []keyspace.Lock{{
		Key: key, Format: "set-nx", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Node: "10.0.0.9:6380", DB: 3,
		Expires: after(time.Minute), Holders: []keyspace.Holder{{ID: "me", Depth: 1}},
	}}}
	drive(t, w, func(d *driver) {
		d.size(140, 60).wantNot("redis-cli").press("y").want(line, `App\\Jobs\\it's`).press("r")
		d.want("copied the command that releases it", "its holder (me) will still believe").press("q")
		warning, copied, _ := strings.Cut(d.copied, "\n")
		check.True(t, strings.HasPrefix(warning, ": 'only for this hold;") && copied == line, "copied %s\n%s", warning, copied)
		d.press("x", "r").want("still believe", line).press("enter")
		d.press("enter").want("command for an exact release, only of this hold", line)
	})
}

// The stored value has its age, and is read again soon after a renewal: the page must not show two
// different TTLs for longer than that.
func TestTheStoredValueFollowsARenewal(t *testing.T) {
	v := holding(mutex("a", "x", 14*time.Second))
	store := func(_ context.Context, l keyspace.Lock) []RawEntry {
		return []RawEntry{{Node: l.Node, Entry: keyspace.Entry{Key: l.Key, Type: "hash", Expires: v.locks[0].Expires}}}
	}
	drive(t, Config{Source: v, Store: store, Every: tickInterval}, func(d *driver) {
		d.size(100, 60).press("enter").wait(2*tickInterval).want("stored as", "read 0.", " s ago").wantNot("─ now ─ ")
		for range 8 {
			v.locks = []keyspace.Lock{mutex("a", "x", time.Since(midnight)+29*time.Second)}
			d.wait(3*tickInterval).want("hash · TTL 28.").wantLine("time left", "28.")
		}
	})
}

func TestThePageOfALockTellsItsStory(t *testing.T) {
	held := mutex("a", "worker-7", time.Minute)
	held.TTLSet, held.Holders[0].DisconnectedAt = time.Minute, before(5*time.Second)
	ended := held
	ended.Expires = before(2 * time.Second)
	ended.Holders = []keyspace.Holder{held.Holders[0]}
	ended.Holders[0].Expires, ended.Holders[0].DisconnectedAt = ended.Expires, before(20*time.Second)
	next := mutex("a", "worker-2", time.Minute)
	events := []keyspace.Event{
		{At: before(time.Minute), Kind: keyspace.Acquired, Lock: held, Holder: keyspace.Holder{ID: held.Holders[0].ID, Label: "worker-7", Since: before(time.Minute)}},
		{At: before(2 * time.Second), Kind: keyspace.Expired, Lock: ended, Holder: ended.Holders[0]},
		{At: before(time.Second), Kind: keyspace.Acquired, Lock: next, Holder: next.Holders[0]},
	}
	calm := mutex("b", "worker-3", time.Minute)
	drive(t, Config{Source: holding(next, calm).watched(keyspace.Push, &events)}, func(d *driver) {
		d.size(120, 40).wait(time.Second).press("enter").wantNot("not known").press("e").want(
			"The connection of worker-7, which held a, had ended by", "expired; no release", "worker-2 acquired it", "not known", "e for the lock").wantNot("got a deadline")
		d.press("p").wantNot("worker-7").want("hidden").press("p").press("e").wantNot("not known").want("is it stuck")
		d.press("esc", "down", "enter", "e").want("no incident", "worker-3 has held it")
		d.press("esc", "enter").wantNot("no incident")
	})
}
