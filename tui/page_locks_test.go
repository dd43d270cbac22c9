package tui

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestThePageOfLocks(t *testing.T) {
	for name, c := range map[string]struct {
		v    *fakeServer
		play func(d *driver, v *fakeServer)
	}{
		"cursor stays on its lock": {sampleServer(), func(d *driver, v *fakeServer) {
			d.press("j", "j").wantLine("▌", "rw:catalog")
			l := mutex("aaa", "x", 0)
			v.locks = append([]keyspace.Lock{l, mutex("aab", "y", 0)}, v.locks...)
			d.wait(2*tickInterval).want("aaa").wantLine("▌", "rw:catalog").press("s", "l").wantLine("▌", "rw:catalog")
		}},
		"pause keeps the frame while sampling continues": {sampleServer(), func(d *driver, v *fakeServer) {
			d.press(" ").want("13.2 s")
			v.locks = append(v.locks, mutex("brand:new", "x", time.Minute))
			looks := v.looks
			d.wait(12*time.Second).want("PAUSED 00:12", "+1 event", "13.2 s").wantNot("brand:new")
			check.True(d.t, v.looks >= looks+40, "%d looks in the 12 s of the pause", v.looks-looks)
			d.press(" ").want("brand:new", "● live").wantNot("13.2 s")
		}},
		"a lost connection keeps the last frame": {sampleServer(), func(d *driver, v *fakeServer) {
			v.err = fmt.Errorf("scan: %w", syscall.ECONNREFUSED)
			d.wait(4*time.Second).want("connection lost 4.", "connection refused", "trying again", "✗ lost", "lock:orders:4711", "13.2 s")
			check.True(d.t, strings.Contains(d.app.View(), "\x1b[2mlock:orders:4711"), "the old frame is not faint")
			v.err = nil
			d.wait(retryAfter+tickInterval).want("● live").wantNot("connection lost", "13.2 s")
		}},
		"a server that does not answer is asked once": {sampleServer(), func(d *driver, v *fakeServer) {
			hung := make(chan struct{})
			v.block = hung
			d.wait(10*time.Second).want("no answer for", "lock:orders:4711")
			check.True(d.t, v.peak == 1, "%d reads at the same time", v.peak)
			v.block = nil
			close(hung)
			d.settle().want("● live").wantNot("no answer")
		}},
		"a late answer is no longer live": {sampleServer(), func(d *driver, v *fakeServer) {
			block := make(chan struct{})
			v.block = block
			d.wait(1500*time.Millisecond).want("no answer 1.").wantNot("● live", "✗ lost")
			d.wait(3 * time.Second).want("✗ lost")
			v.block = nil
			close(block)
			d.wait(time.Second).want("● live")
		}},
		"a filter selects what it finds when the selected lock is gone": {sampleServer(), func(d *driver, v *fakeServer) {
			d.press("/").enter("sku9").press("enter", "esc")
			v.locks = slices.DeleteFunc(v.locks, func(l keyspace.Lock) bool { return strings.Contains(l.Key, "sku9") })
			d.wait(time.Second).want("not held now").press("/").enter("fair").press("enter").wantNot("not there now").want("── fair:mail")
		}},
		"cursor waits for a lock that is taken again": {
			holding(mutex("a", "x", time.Minute), mutex("b", "y", time.Minute), mutex("c", "z", time.Minute)), func(d *driver, v *fakeServer) {
				d.press("j").want("── b ─")
				v.locks = []keyspace.Lock{v.locks[0], v.locks[2]}
				d.wait(2*tickInterval).want("── b ─", "not held now").wantNot("▌  a", "▌  c")
				v.locks = []keyspace.Lock{v.locks[0], mutex("b", "q", time.Minute), v.locks[1]}
				d.wait(2*tickInterval).wantNot("not held now").wantLine("▌  b", "q")
			}},
		// Among many locks, and in the free lines below a few.
		"the preview says all that the first finding says to do": {&fakeServer{locks: append(manyLocks(200), mutex("a", "x", 0))}, func(d *driver, v *fakeServer) {
			d.size(80, 24).want("── a ─", "Do not", "delete the key: a holder that still works would lose the lock", "immediately.").wantNot("so far")
			v.locks = v.locks[198:]
			d.wait(time.Second).want("so far").wantOrder("▌▲ a", "forever.", "delete the key")
		}},
		"the selection is always in sight": {&fakeServer{locks: manyLocks(200)}, func(d *driver, v *fakeServer) {
			for range 60 {
				d.press("j").want("▌")
			}
			for _, keys := range []string{"pgdown", "pgdown", "v", "v", "G", "pgup", "i", "s", "d", "g", "G"} {
				d.press(keys).want("▌")
			}
			d.size(80, 14).want("▌")
			for range 60 {
				d.press("k").want("▌")
			}
		}},
		"TTL is counted on the clock of the server": {
			&fakeServer{ahead: time.Hour, locks: []keyspace.Lock{mutex("a", "x", time.Hour+30*time.Second)}}, func(d *driver, _ *fakeServer) {
				d.want("29.7 s")
			}},
		"the text of an error is escaped": {&fakeServer{err: errors.New("ERR \x1b[2Jgone\nfake row")}, func(d *driver, _ *fakeServer) {
			d.want(`ERR \x1b[2Jgone\nfake row`, "no snapshot yet")
		}},
		"a lock after its deadline is expired": {&fakeServer{}, func(d *driver, v *fakeServer) {
			over := time.Now().Add(-9 * time.Second)
			v.locks = []keyspace.Lock{{
				Key: "seat:14c", Kind: keyspace.Mutex, Stamped: true, Expires: over, Holders: []keyspace.Holder{{ID: "a", Depth: 1, Expires: over}},
			}}
			d.size(120, 35).wait(2*tickInterval).want("◌ expired", "-9.", "passed 9.").wantNot("● held", "0.0 s")
			d.press("enter").want("expired", "its deadline passed 9.").wantNot("0.0 s")
		}},
		"a lock that is gone has no time left": {holding(mutex("a", "first", 5*time.Second)), func(d *driver, v *fakeServer) {
			d.wait(time.Second).press("enter").want("time left").wait(4 * time.Second)
			v.locks = nil
			d.wait(4*time.Second).want("not held now, expired 4.", "below as last seen").wantNot("time left")
		}},
		"a lock that is gone is shown as it was last": {
			holding(mutex("other", "x", time.Minute), mutex("a", "first", time.Minute)), func(d *driver, v *fakeServer) {
				second := mutex("a", "second", 2*time.Minute)
				second.Holders[0].Since = time.Time{}
				d.wait(2 * time.Second)
				v.locks[1] = second
				d.wait(time.Second)
				v.locks = v.locks[:1]
				d.wait(time.Second).press("6", "/").enter("appeared").press("enter", "down", "enter").want("not held now")
				d.wantLine("  holder", "second")
			}},
		"the hold of a lock that is gone does not grow": {holding(mutex("a", "first", time.Minute)), func(d *driver, v *fakeServer) {
			d.wait(time.Second)
			v.locks = nil
			d.wait(time.Second).want("not held now")
			was := d.line("  holder")
			check.Equal(d.t, d.wait(20*time.Second).line("  holder"), was, "on the page of locks, later")
			d.press("6", "enter").want("not held now")
			was = d.line("  holder")
			check.Equal(d.t, d.wait(20*time.Second).line("  holder"), was, "on its own page, later")
		}},
		// A failover moves a lock to another node. It is the same lock, with the same past.
		"a lock keeps its past on another node": {
			holding(mutex("a", "first", time.Minute), mutex("b", "second", time.Minute)).watched(keyspace.Push, nil),
			func(d *driver, v *fakeServer) {
				d.wait(time.Second).press("down", "t", "enter").want("appeared", "second")
				for i := range v.locks {
					v.locks[i].Node = "127.0.0.1:6380"
				}
				d.wait(2*time.Second).want("b", "appeared", "second").wantNot("not held now")
				s := d.app.state
				id := keyspace.ID{Node: "127.0.0.1:6380", Key: "b"}
				n, _ := s.moment().lane(id, timeWindow{})
				check.True(d.t, n != nil && len(n.Holds) == 1 && n.Holds[0].Lasts(), "the lane of the lock is %+v", n)
				d.press("1").want("1 tagged")
			}},
		"a server that refuses is not lost": {sampleServer(), func(d *driver, v *fakeServer) {
			v.err = fmt.Errorf("scan: %w", refusal("NOPERM no scan"))
			d.wait(4 * time.Second).want("the server refuses to be read: scan: NOPERM no scan, trying again").wantNot("connection lost")
		}},
		"nodes of a lost connection are not up": {sampleServer(), func(d *driver, v *fakeServer) {
			d.press("4").want("● up")
			v.err = errors.New("connection refused")
			d.wait(4*time.Second).want("connection lost", "127.0.0.1:6379  ", "✗ lost  ").wantNot("● up")
			v.err = nil
			d.wait(retryAfter + tickInterval).want("● up")
		}},
		// What this user may not read is on the page of the servers, and the page of the locks points to it.
		"the screen says what it does not see": {sampleServer(), func(d *driver, v *fakeServer) {
			d.wantNot("not all is seen").press("4").wantNot("what locktop does not see").press("1")
			v.unseen = []string{"this user may not run HGETALL"}
			d.wait(2*time.Second).want("not all is seen: see Nodes").press("4").want("what locktop does not see", "may not run HGETALL")
			d.press("p").wantNot("HGETALL")
		}},
		"a state beside a critical finding does not look good": {holding(mutex("job:a", "x", 0), mutex("job:b", "y", time.Minute)), func(d *driver, _ *fakeServer) {
			d.wantLine("▲ job:a", "▲ no TTL").wantLine("  job:b", "● held").press("enter").wantLine("Esc back", "▲ no TTL")
		}},
		"snooze without a finding is rejected": {&fakeServer{}, func(d *driver, _ *fakeServer) {
			d.press("5", "z").want("no finding to snooze")
			d.press(":").enter("snooze banana").press("enter").want("a duration from 1 s on")
		}},
		"a risk to all locks is a finding about the server": {&fakeServer{evicts: "volatile-ttl"}, func(d *driver, _ *fakeServer) {
			d.want("1 finding", "server: 127.0.0.1:6379 evicts")
			d.press("5").want("server", "127.0.0.1:6379 evicts keys", "Keep locks on a separate server")
			d.press("enter").want("this is about a server; 4 shows them").press("p").want("evicts keys")
			text := d.screen()
			check.False(d.t, strings.Contains(text[strings.Index(text, "LOCK"):], "127.0.0.1"),
				"the address is shown in spite of p:\n%s", text)
		}},
		"the key column uses the spare width": {
			holding(mutex("job-lock:default:nightly-jobs", "x", time.Hour)), func(d *driver, _ *fakeServer) {
				const key = "job-lock:default:nightly-jobs"
				for _, size := range [][2]int{{80, 24}, {120, 35}, {160, 45}, {200, 60}} {
					d.size(size[0], size[1])
					check.True(d.t, strings.Count(d.screen(), key) >= 2,
						"%v: the key is cut in the table or the preview\n%s", size, d.screen())
				}
				d.want("FORMAT")
				for _, w := range []int{80, 110, 120} {
					d.size(w, 30).wantNot("FENCE").press("w").want("FENCE").press("w")
				}
			}},
		// A server that does not say its role and version, as an embedded one, has no such columns.
		"unknown roles have no column": {
			&fakeServer{nodes: []keyspace.Node{
				{Server: keyspace.Server{Addr: "127.0.0.1:6379"}, Up: true, Ping: 20 * time.Microsecond, Keys: 54, Locks: 8},
			}},
			func(d *driver, v *fakeServer) {
				d.press("4").want("STATE", "<0.1 ms").wantNot("ROLE", "VERSION")
				v.nodes[0].Role = "master"
				d.wait(2*time.Second).want("ROLE", "master")
			}},
	} {
		t.Run(name, func(t *testing.T) { drive(t, Config{Source: c.v}, func(d *driver) { c.play(d, c.v) }) })
	}
}

func TestTTLFallsBetweenTwoSnapshots(t *testing.T) {
	w := testConfig()
	w.Every = time.Hour
	drive(t, w, func(d *driver) {
		d.want("13.2 s").wait(2*time.Second).want("11.2 s").wait(time.Minute).wantLine("lock:orders", "0.0 s")
	})
}

func TestBarIsFullAfterARenewal(t *testing.T) {
	v := holding(mutex("a", "x", 10*time.Second))
	drive(t, Config{Source: v}, func(d *driver) {
		d.wait(7 * time.Second)
		part := strings.Count(d.line("  a "), "█")
		for range 20 { // repeated reads of a deadline differ by some milliseconds
			v.locks = []keyspace.Lock{mutex("a", "x", 10*time.Second+7*time.Millisecond)}
			d.wait(tickInterval / 2)
			v.locks = []keyspace.Lock{mutex("a", "x", 10*time.Second)}
			d.wait(tickInterval / 2)
			check.AtMost(t, strings.Count(d.line("a  "), "█"), part, "cells of the bar without a renewal")
		}
	})
	drive(t, Config{Source: v}, func(d *driver) {
		d.wait(7 * time.Second)
		before := strings.Count(d.line("a  "), "█")
		v.locks = []keyspace.Lock{mutex("a", "x", 17*time.Second)}
		d.wait(tickInterval)
		now := strings.Count(d.line("a  "), "█")
		check.True(t, now > before && now >= 6, "the bar was %d cells, and is %d after the renewal:\n%s", before, now, d.screen())
	})
}

// rows returns the first word of each row on the screen.
func (d *driver) rows() []string {
	var keys []string
	for _, row := range d.app.pages[0].(*locksPage).rows {
		keys = append(keys, row.lock.Key)
	}
	return keys
}

func TestFilterTakesWordsInversesAndExpressions(t *testing.T) {
	for typed, want := range map[string]string{
		"lock:":        "2 of 8",
		"!lock:":       "6 of 8",
		"PAY-7":        "1 of 8",
		"~^(rw|fair)":  "3 of 8",
		"!~^(rw|fair)": "5 of 8",
		"~(":           "missing closing )",
		"stuck":        "1 of 8",
		"redisson":     "4 of 8",
		"!":            "8 of 8",
		"注文":           "1 of 8",
		"nowhere":      "0 of 8",
	} {
		drive(t, testConfig(), func(d *driver) { d.press("/").enter(typed).want(want) })
	}
}

func TestAPanicOfASnapshotRequestReachesTheEventLoop(t *testing.T) {
	msg := guarded(startPanic)()
	defer func() {
		text := fmt.Sprint(recover())
		check.True(t, strings.Contains(text, "at the disco") && strings.Contains(text, "startPanic"), "the panic became %v", text)
	}()
	newApp(t.Context(), testConfig()).Update(msg)
}

func startPanic() tea.Msg { panic("at the disco") }

func TestAHoldWithoutAStartShowsAMinimumHoldTime(t *testing.T) {
	quiet := mutex("quiet", "x", time.Hour)
	quiet.Holders[0].Since, quiet.Holders[0].Seen = time.Time{}, before(0)
	v := holding(mutex("told", "y", time.Hour), quiet)
	drive(t, Config{Source: v}, func(d *driver) {
		d.wait(3*time.Minute).wantLine(" quiet ", "≥3 m 00")
		told := d.wantLine(" told ", " 3 m 02").line(" told ")
		check.False(t, strings.Contains(told, "≥"), "its begin is known: %s", told)
		d.press(":").enter("sort held").press("enter", "j").want("held for at least 3 m 00")
		d.line("▌  quiet")
		v.locks[1].Holders = []keyspace.Holder{{ID: "z", Depth: 1, Seen: after(3 * time.Minute)}}
		v.locks[1].Expires = after(2 * time.Hour)
		d.wait(30 * time.Second)
		line := d.line(" quiet ")
		check.True(t, strings.Contains(line, "≥29 s") || strings.Contains(line, "≥30 s"),
			"another holder has held it for half a minute: %q", line)
	})
}

// shows returns formats, one of which shows waiters, and another has waiters that block.
func shows() []keyspace.Format {
	return []keyspace.Format{
		{About: keyspace.About{Name: "set-nx"}}, {About: keyspace.About{Name: "redisson"}, ShowsWaiters: true}, {About: keyspace.About{Name: "blpop"}, BlockingWait: true},
	}
}

func TestUnknownWaitersAreNotShownAsZero(t *testing.T) {
	seen, blocking := mutex("seen", "y", time.Hour), mutex("blocking", "z", time.Hour)
	seen.Format, blocking.Format = "redisson", "blpop"
	v := holding(mutex("unseen", "x", time.Hour), seen, blocking)
	drive(t, Config{Source: v, Formats: shows()}, func(d *driver) {
		for name, want := range map[string]string{" unseen ": " ? ", " seen ": " 0 ", " blocking ": " ? "} {
			d.wantLine(name, want)
		}
		d.press("/").enter("^seen").press("backspace", "backspace", "backspace", "backspace", "backspace").enter("~^seen").press("enter").want("waiting   none")
		d.press("/", "ctrl+u").enter("unseen").press("enter").want("not recorded by this lock type").wantNot("BLPOP")
		d.press("/", "ctrl+u").enter("blocking").press("enter").wantNot("of the server wait")
		v.blocked = 3
		d.wait(2 * tickInterval).want("3 clients of the server wait in BLPOP")
	})
}

// A request of another client is a waiter at least, for 2 s. The page of the lock says when it was
// and how often there is one, or why requests cannot be seen.
func TestAHeldLockThatAnotherClientAsksForHasAWaiterAtLeast(t *testing.T) {
	asked := mutex("asked", "x", time.Hour)
	asked.AskedAt, asked.AskedPercent = after(time.Second), 84
	fenced := mutex("fenced", "7", time.Hour)
	fenced.Fence = 7
	v := holding(mutex("a quiet", "y", time.Hour), asked, mutex("number", "7", time.Hour), fenced)
	drive(t, Config{Source: v, Formats: shows()}, func(d *driver) {
		d.size(120, 40).wait(time.Second).wantLine(" asked ", " ≥1 ").want("4 locks  ≥1 waiting")
		d.wantOrder(" asked ", " a quiet ") // the lock with most waiting is first
		d.press("home", "enter").want("another client read or asked for it 1 s ago, and did so in 84 % of the", "at least 1 client")
		d.wait(2 * time.Second).want("another client read or asked for it 2 s ago").wantNot("at least 1 client").press("esc")
		d.wantLine(" asked ", " ? ")
		d.press("/").enter("number").press("enter", "enter").want("and not seen: the server has one idle time for all keys").press("esc", "esc")
		d.press("/").enter("fenced").press("enter", "enter").want("fence 7").wantNot("one idle time").press("esc", "esc")
		v.nodes = []keyspace.Node{{Server: keyspace.Server{Addr: "127.0.0.1:6379"}, Up: true, AskBlind: "the server records no idle times with maxmemory-policy allkeys-lfu"}}
		d.press("/").enter("quiet").wait(2*tickInterval).press("enter", "enter").want("not recorded by this lock type, and not seen: the server records no idle", "allkeys-lfu")
		v.locks[0].Waiters = []keyspace.Waiter{{ID: "p", Polls: true}, {ID: "q", Polls: true}} // MONITOR has shown them
		d.press("esc", "esc").wait(2*tickInterval).wantLine(" a quiet ", " ≥2 ")
	})
}

// The deadlines go on while nothing is read, and the screen says how old its picture is.
func TestDeadlinesCountDownBetweenReads(t *testing.T) {
	v := holding(mutex("a", "x", time.Minute))
	var read keyspace.Snapshot // a watcher has read the server only once
	v.edit = func(s *keyspace.Snapshot) {
		if read.At.IsZero() {
			read = *s
			read.Nodes = []keyspace.Node{{Server: keyspace.Server{Addr: "127.0.0.1:6379"}, Up: true, AnsweredAt: time.Now()}}
			read.Server.Skew = time.Until(s.At)
		}
		*s = read
	}
	drive(t, Config{Source: v}, func(d *driver) {
		d.want("live").wait(20 * time.Second)
		line := d.line(" a ")
		check.True(t, strings.Contains(line, "39.") || strings.Contains(line, "40.0 s"), "after 20 s of 60: %q", line)
		d.want("s old").wantNot("live")
	})
}

func TestTheLockPageListsTheOtherLocksOfItsHolder(t *testing.T) {
	pay := keyspace.Holder{ID: "pay-5~0f6a", Label: "pay-5", Depth: 1}
	ship := keyspace.Holder{ID: "8743c9c0:7", Depth: 1}
	w := testConfig()
	locks := []keyspace.Lock{
		{Key: "lock:a", Format: "locktop", Holders: []keyspace.Holder{pay}, Waiters: []keyspace.Waiter{{ID: ship.ID}}},
		{Key: "lock:b", Format: "redisson", Holders: []keyspace.Holder{ship}, Waiters: []keyspace.Waiter{{ID: "pay-5~77aa"}, {ID: "pay-55~1"}}},
		{Key: "lock:c", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-5~beef", Label: "pay-5", Depth: 1}}},
		{Key: "lock:d", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-55~1", Label: "pay-55", Depth: 1}}},
		{Key: "lock:e", Format: "locktop", Holders: []keyspace.Holder{{ID: "solo", Depth: 1}}, Waiters: []keyspace.Waiter{{ID: "pay-55~2"}}},
	}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.size(100, 50).wait(2*tickInterval).press("/").enter("lock:a").press("enter", "enter")
		d.want("pay-5 also holds lock:c", "pay-5 waits for lock:b, which 8743c9c0:7 holds", "Possible deadlock between processes: 8743c9c0:7 waits for").wantNot("lock:e") // pay-55 waits for it
		d.press("esc", "esc", "/").enter("lock:c").press("enter", "enter")
		d.want("pay-5 also holds lock:a", "pay-5 waits for lock:b").wantNot("eadlock")
		d.press("enter").wantOrder("open, from lock:c", "lock:b", "waited for by pay-5", "lock:a", "waited for by 8743c9c0:7").press("down", "enter")
		d.want("● held  lock:a").press("enter").want("open, from lock:a", "lock:c")
		d.press("esc", "esc", "esc", "/").enter("lock:c").press("enter", "enter")
		d.press("esc", "esc", "/").enter("lock:d").press("enter", "enter")
		d.want("pay-55 waits for lock:b").wantNot("also holds")
	})
}

// forAnHour returns the locks as mutexes with a deadline.
func forAnHour(locks []keyspace.Lock) []keyspace.Lock {
	for i := range locks {
		locks[i].Kind, locks[i].Expires = keyspace.Mutex, time.Now().Add(time.Hour)
	}
	return locks
}

// A filter for an owner shows the locks that it holds and those that it waits for.
func TestTheFilterFindsLocksByTheirWaiters(t *testing.T) {
	w := testConfig()
	holder := func(name string) []keyspace.Holder { return []keyspace.Holder{{ID: name, Depth: 1}} }
	locks := []keyspace.Lock{
		{Key: "a", Holders: holder("pay-5")},
		{Key: "b", Holders: holder("ship-1"), Waiters: []keyspace.Waiter{{ID: "pay-5"}}},
		{Key: "c", Holders: holder("ship-1")},
		{Key: "d", Holders: holder("pay-5")},
	}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.press("/").enter("pay-5").want("3 of 4").press("enter", "esc")
		d.press(":").enter("sort owner").press("enter").wantOrder("pay-5", "pay-5", "ship-1", "ship-1")
	})
}

// o groups the locks by owner. The heading of an owner says what it holds, with others,
// too, and what it waits for. Owners of one lock share a heading, and so do free locks.
func TestLocksAreGroupedByOwner(t *testing.T) {
	w := testConfig()
	holder := func(names ...string) (all []keyspace.Holder) {
		for _, name := range names {
			all = append(all, keyspace.Holder{ID: name + "~0f", Label: name, Depth: 1})
		}
		return all
	}
	waiter := func(ids ...string) (all []keyspace.Waiter) {
		for _, id := range ids {
			all = append(all, keyspace.Waiter{ID: id})
		}
		return all
	}
	locks := []keyspace.Lock{
		{Key: "k1", Holders: holder("pay-5"), Waiters: waiter("ship-1~aa")},
		{Key: "k2", Holders: holder("solo")},
		{Key: "k3", Holders: holder("ship-1", "pay-5")},
		{Key: "k4", Holders: holder("pay-5")},
		{Key: "k5", Holders: holder("ship-1"), Waiters: waiter("pay-5~77", "pay-5~78", "nobody~1")},
		{Key: "k6", Holders: holder("other")},
		{Key: "k7", Holders: []keyspace.Holder{{ID: "late", Depth: 1}}, Waiters: waiter("solo-2~1")}, // its library has no labels
		{Key: "k8"},
		{Key: "k9", Holders: holder("next"), Waiters: waiter("late")},
	}
	v := &fakeServer{locks: forAnHour(locks)}
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(120, 35).press("o")
		d.want("pay-5  holds 3 locks, k3 with others · possible deadlock with ship-1 · waits for k5, which ship-1 holds")
		line := strings.TrimSpace(d.line("pay-5  holds"))
		check.True(t, strings.HasSuffix(line, "waits for k5, which ship-1 holds"), "two waiters of one owner are named twice: %s", line)
		d.want("ship-1  holds 2 locks · possible deadlock with pay-5", "waits for k1, which pay-5 holds")
		d.want("next  holds 1 lock · blocks 1 owner", "late  holds 1 lock · waits for k9, which next holds", "2 owners with one lock each", "1 lock without a holder")
		d.wantOrder("pay-5  holds", "k1", "k4", "ship-1  holds", "k5", "k3", "next  holds", "k9", "late  holds", "k7", "2 owners", "k2", "k6", "1 lock without", "k8")
		d.want("sorted by owner, then worst first")

		d.wantLine("▌", "k1")
		for _, key := range []string{"k4", "k5", "k3", "k9", "k7", "k2", "k6", "k8", "k8"} {
			d.press("j").wantLine("▌", key)
		}
		for _, key := range []string{"k6", "k2", "k7", "k9", "k3", "k5", "k4", "k1", "k1"} {
			d.press("k").wantLine("▌", key)
		}
		d.press("G").wantLine("▌", "k8").press("g").wantLine("▌", "k1")
		above, _, _ := strings.Cut(d.screen(), "ship-1  holds")
		d.deliver(tea.MouseMsg{X: 9, Y: strings.Count(above, "\n"), Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
		d.settle().wantLine("▌", "k5").press("enter").want("newest first", "k5").press("esc")

		d.press("/").enter("k7").want("1 of 9").press("enter").want("late  holds 1 lock · waits for k9").wantNot("pay-5  holds").press("esc")
		for h := 12; h > 5; h-- { // the heading above the selection is in sight, too
			d.size(59, h).press("G", "g").want("pay-5  holds")
		}
		d.size(120, 35).press("o").wantNot("  holds ", "grouped")
		d.press(":").enter("group owner").press("enter").want("ship-1  holds 2 locks")
		d.press(":").enter("group nothing").press("enter").want("group: one of: owner, class, none")
		d.press(":").enter("group none").press("enter").wantNot("ship-1  holds")
	})
}

func TestHeadingsOfOwnersKeepPrivacy(t *testing.T) {
	w := testConfig()
	locks := []keyspace.Lock{
		{Key: "secret-1", Holders: []keyspace.Holder{{ID: "alice", Depth: 1}}},
		{Key: "secret-2", Holders: []keyspace.Holder{{ID: "bob", Depth: 1}}, Waiters: []keyspace.Waiter{{ID: "alice"}}},
		{Key: "secret-3", Holders: []keyspace.Holder{{ID: "carol", Depth: 1}}, Waiters: []keyspace.Waiter{{ID: "bob"}}},
	}
	locks[0].Waiters = []keyspace.Waiter{{ID: "carol"}}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.size(120, 40).press("o").want("alice  holds 1 lock · possible deadlock with bob · waits for secret-2, which bob holds", "alice waits for secret-2 of bob")
		d.press("p").want("holds 1 lock · possible deadlock with owner-", "· waits for ").wantNot("alice", "secret", "bob", "carol")
	})
}

func TestALongListOfKeysIsCut(t *testing.T) {
	var keys []string
	for i := range 9 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	check.Equal(t, listed(keys, namesListed, len(keys)), "k0, k1, k2, k3, k4, k5 and 3 more")
}

// The view model brings the ownerships of the lock that the last frame shows, so that the
// next frame does not wait for the search. It searches for no lock that no frame shows.
func TestAViewModelBringsTheOwnershipsThatTheFrameShows(t *testing.T) {
	a := appWith(3)
	source := sourceFunc(func(context.Context) (keyspace.Snapshot, error) { return snapshotOf(3), nil })
	next := func() *ownerships {
		a.Update(fetchSnapshot(t.Context(), source, a.live, 0)())
		return a.live.owners
	}
	check.Require(t, a.View() != "" && a.live.owners.drawn, "the frame does not show the lock")
	shown := a.live.owners.lock
	found := next()
	check.True(t, found != nil && found.lock == shown, "it has the ownerships %+v, want those of %v", found, shown)
	check.True(t, next() == nil, "no frame shows %v, but it was searched", shown)
}

func TestOwnershipsOfChangesAreThoseOfAllLocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	locks := make(map[int]*keyspace.Lock)
	var before *viewModel
	kept := 0
	for step := range 3000 {
		for range random.IntN(3) {
			i := random.IntN(12)
			if locks[i] = nil; random.IntN(4) > 0 {
				locks[i] = &keyspace.Lock{Key: fmt.Sprintf("lock:%02d", i), Kind: keyspace.Semaphore, Fence: int64(step)}
				for range random.IntN(3) {
					name := fmt.Sprint("owner-", random.IntN(9))
					locks[i].Holders = append(locks[i].Holders, keyspace.Holder{ID: fmt.Sprint(name, "~", step), Label: name, Depth: 1})
				}
			}
		}
		snap := keyspace.Snapshot{At: after(time.Duration(step) * time.Millisecond)}
		for i := range 12 {
			if locks[i] != nil {
				snap.Locks = append(snap.Locks, locks[i])
			}
		}
		model := newViewModel(snap, snap.At, before)
		l, known := model.lock(keyspace.ID{Key: "lock:00"})
		if !known {
			before = model
			continue
		}
		var old *ownerships
		if before != nil {
			old = before.owners
		}
		model.owners = model.searchOwnerships(&l, old)
		want := model.searchOwnerships(&l, nil)
		for i := range want.holds {
			got := slices.Clone(model.owners.holds[i])
			byKey := func(a, b *keyspace.Lock) int { return strings.Compare(a.Key, b.Key) }
			slices.SortFunc(got, byKey)
			slices.SortFunc(want.holds[i], byKey)
			check.Require(t, slices.Equal(got, want.holds[i]), "step %d: %s holds %v, want %v", step, want.names[i], got, want.holds[i])
			if len(got) > 0 && old != nil && i < len(old.holds) && len(old.holds[i]) > 0 && &model.owners.holds[i][0] == &old.holds[i][0] {
				kept++
			}
		}
		before = model
	}
	check.True(t, kept >= 100, "only %d times they were taken over", kept)
}

// refusal is an error reply of a server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

// No findings is green only if everything was read.
func TestNoFindingsIsSaidAsFarAsItIsKnown(t *testing.T) {
	nodes, scanned := []keyspace.Node{{Up: true}}, []keyspace.Node{{Up: true, Scanned: true}}
	for want, server := range map[string]*fakeServer{
		"findings are not known yet":   {err: errors.New("refused")},
		"no findings so far":           {edit: func(s *keyspace.Snapshot) { s.Nodes, s.Complete, s.Cost.Keys = nodes, false, 0 }},
		"no findings so far, 11 % of":  {edit: func(s *keyspace.Snapshot) { s.Nodes, s.Complete, s.Cost.Keys, s.Cost.Scanned = nodes, false, 900, 100 }},
		"no findings in what was read": {edit: func(s *keyspace.Snapshot) { s.Nodes, s.Complete = scanned, false }},
		"✓ no findings":                {},
	} {
		drive(t, Config{Source: server}, func(d *driver) {
			d.press("5").want(want)
			check.True(t, strings.Contains(d.screen(), "✓") == strings.HasPrefix(want, "✓"), "the screen: %s", d.screen())
			if !strings.HasPrefix(want, "✓") {
				return
			}
			server.err = errors.New("refused")
			d.wait(4 * time.Second).want("no findings before the connection was lost").wantNot("✓")
		})
	}
}

// No page makes a number, a "no" or a check mark of what is unknown: of a lock that is held, and of its server.
func TestNoPageMakesANumberOfWhatIsUnknown(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 31, 17, 125e6, time.UTC)
	l := keyspace.Lock{
		Key: "orders", Node: "a:1", DB: 3, Kind: keyspace.Mutex, Format: "set-nx", Confidence: keyspace.Likely, Expires: now.Add(45 * time.Second), ReadAt: now,
		Holders: []keyspace.Holder{{ID: "token", Depth: 1, Expires: now.Add(45 * time.Second)}},
	}
	server := &fakeServer{edit: func(s *keyspace.Snapshot) {
		*s = keyspace.Snapshot{At: now, Locks: []*keyspace.Lock{&l}, Nodes: []keyspace.Node{{Up: true, Server: keyspace.Server{Addr: "a:1"}, Locks: 1, AskBlind: "a proxy"}, {Server: keyspace.Server{Addr: "b:1"}, Error: "refused"}}}
	}}
	claims := regexp.MustCompile(`(?i)(?:^|[ (])(?:0(?:\.0+)?(?: s| ms| ?%)?|no|none|false|nothing|never|nobody)(?:$|[ ,)])|✓`)
	known := regexp.MustCompile(`no findings so far|no hold was seen|waits for no other lock, as far as locktop sees`)
	drive(t, Config{Source: server, Formats: []keyspace.Format{{About: keyspace.About{Name: "set-nx"}}}}, func(d *driver) {
		d.want("1 lock so far", "? waiting")
		for _, keys := range [][]string{{"1"}, {"enter"}, {"esc", "2"}, {"4"}, {"5"}, {"6"}} {
			d.press(keys...)
			for line := range strings.Lines(d.screen()) {
				said := claims.FindString(known.ReplaceAllString(line, ""))
				check.True(t, said == "", "after %q the screen says %q of what is unknown: %s", keys, said, line)
			}
		}
	})
}

// Only the first snapshot makes the widths of the columns take all locks into account.
func TestTheWidthsFollowEachSnapshot(t *testing.T) {
	w := testConfig()
	w.Source = holding(mutex("a", "x", time.Minute))
	drive(t, w, func(d *driver) {
		d.wait(time.Second)
		was := d.app.locks().measured
		d.press("6").wait(time.Second)
		check.True(t, d.app.locks().measured.After(was) && d.app.locks().measured.Equal(d.app.live.snap.At), "measured at %v", d.app.locks().measured)
	})
}
