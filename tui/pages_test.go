package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestAllOfAKindOrOfALockAreSnoozedAtOnce(t *testing.T) {
	v := sampleServer()
	for i := range 7 {
		l := mutex("job:"+string(rune('a'+i)), "x", time.Hour)
		l.Holders[0].Since = before(time.Hour)
		v.locks = append(v.locks, l)
	}
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5", "j").want("▶ 8 × overdue").press("z").want("8 snoozed", "1 finding ", "▶ 8 × overdue", "back in 1 h 00")
		d.press("home", "enter").press("z").want("back in 1 h 00: Held for 3 h 12 without").press("esc").want("9 snoozed")
		d.press("G", "z").want("8 findings", "1 snoozed")
	})
}

// Findings arrive one after another during a scan.
func TestTheWorstFindingIsSelectedUntilTheUserMoves(t *testing.T) {
	v := sampleServer()
	late := mutex("lock:late", "x", time.Hour)
	late.Holders[0].Since = before(time.Hour)
	all := v.locks
	v.locks = append(v.locks[:0:0], late)
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5").want("lock:late")
		v.locks = append(all, late)
		d.wait(2*tickInterval).wantLine("▌", "job:nightly").press("G").wait(2 * tickInterval)
		v.locks = append(v.locks, mutex("aaa", "y", 0))
		d.wait(2*tickInterval).want("aaa").wantLine("▌", "lock:late")
	})
}

// Two servers can have the same finding. The cursor stays on the selected one.
func TestTheSelectionDistinguishesServers(t *testing.T) {
	v := sampleServer()
	v.locks = v.locks[:0]
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379"} {
		v.nodes = append(v.nodes, keyspace.Node{Up: true, Server: keyspace.Server{Addr: addr, MaxMemory: 1, Policy: "volatile-ttl"}})
	}
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5", "j")
		v.locks = append(v.locks, mutex("job:nightly", "x", 0)) // sorts first
		d.wait(2*tickInterval).wantLine("▌", "10.0.0.2")
	})
}

func TestManyFindingsOfAKindAreOneRow(t *testing.T) {
	v := sampleServer()
	for i := range 500 {
		l := mutex(fmt.Sprintf("job:%03d", i), "x", time.Hour)
		l.Holders[0].Since = before(time.Hour)
		v.locks = append(v.locks, l)
	}
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5").wantOrder("without a deadline", "501 × overdue").wantNot("job:017")
		for range 5 {
			d.press("j")
		}
		d.want("▶ 501 × overdue").press("y").want("no lock to copy from")
		d.press("enter").want("▼ 501 × overdue", "job:004").press("j", "j", "enter").want("newest first").press("esc")
		d.press("home", "j", "enter").want("▶ 501 × overdue").wantNot("job:004")
		d.press("/").enter("job:00").want("10 of 502").press("enter")
	})
}

func TestTheEventLogCountsDiscardedEvents(t *testing.T) {
	var s state
	j, at := &s.log, func(i int) time.Time { return after(time.Duration(i) * time.Second) }
	for i := range 5 * maxEvents {
		j.add([]keyspace.Event{{At: at(i), Lock: keyspace.Lock{Key: fmt.Sprintf("lock:%d", i%10)}}}, nil)
	}
	check.True(t, len(j.events) <= 2*maxEvents && j.total == 5*maxEvents, "%d events are kept of %d", len(j.events), j.total)
	for i := range 10 {
		id := keyspace.ID{Key: fmt.Sprintf("lock:%d", i)}
		s.paused = nil
		for k, e := range s.latest(id, maxEvents) {
			want := at(5*maxEvents - 10 + i - 10*k)
			check.Require(t, e.Lock.Key == id.Key && e.At.Equal(want), "%d of %s is of %s at %v, want %v", k, id.Key, e.Lock.Key, e.At, want)
		}
		check.Equal(t, len(s.latest(id, 3)), 3, "of three")
		s.paused = &pausedView{clock: at(5*maxEvents - 11)}
		check.True(t, s.latest(id, 1)[0].At.Equal(at(5*maxEvents-20+i)), "before the last ten it is %v", s.latest(id, 1))
	}
}

// An event that a lock appeared takes little memory in the log, and is complete when it is read.
func TestTheEventLogKeepsWhatTheSnapshotDoesNotSay(t *testing.T) {
	a, b := mutex("a", "x", time.Minute), mutex("b", "y", time.Minute)
	now := a
	now.Fence = 7
	appeared := func(l keyspace.Lock) keyspace.Event {
		return keyspace.Event{At: before(0), Kind: keyspace.Discovered, Lock: l, Holder: l.Holders[0]}
	}
	expired := keyspace.Event{At: before(0), Kind: keyspace.Expired, Lock: b, Holder: b.Holders[0], Held: time.Second}
	var s state
	s.log.add([]keyspace.Event{appeared(a), appeared(b), expired}, []*keyspace.Lock{&now, &b})
	check.Equal(t, s.latest(a.ID(), 1)[0].Lock.Fence, int64(0), "the fence of a, which had none then")
	check.Equal(t, s.latest(b.ID(), 1)[0].Held, time.Second, "the hold that ended")
	check.True(t, s.log.events[1].full == nil && s.log.events[1].lock == &b, "the event of b is kept twice")
	check.Equal(t, fmt.Sprint(*s.latest(b.ID(), 2)[1]), fmt.Sprint(appeared(b)), "the event of b")
}

func TestAnEventCanBeCopied(t *testing.T) {
	l := mutex("a", "thief-1", time.Minute)
	events := []keyspace.Event{{At: before(0), Kind: keyspace.Stolen, Lock: l, Holder: keyspace.Holder{ID: "victim-1"}, Held: time.Second}}
	w := testConfig()
	w.Source = holding(l).watched(keyspace.Push, &events)
	drive(t, w, func(d *driver) {
		d.size(120, 30).wait(time.Second).press("6", "j")
		for !strings.Contains(d.line("▌"), "stolen") {
			d.press("j")
		}
		for key, want := range map[string]string{
			"k": "a", "c": "victim-1", "e": "2000-01-01T00:00:00.000Z stolen a victim-1 taken by thief-1 · held for 1.0 s",
		} {
			d.press("y", key).wait(tickInterval)
			check.Equal(t, d.copied, want, "what y "+key+" copied")
		}
	})
	drive(t, Config{Source: &fakeServer{}}, func(d *driver) { d.press("6", "y").want("no lock to copy from") })
}

// The event of a waiter does not show the deadline of the lock. A waiter of the load is a process of its clients.
func TestTheEventOfAWaiterDoesNotShowTheDeadlineOfTheLock(t *testing.T) {
	prefix := runningLoad().Scenario().Keys.Prefix
	w := testConfig()
	w.Load = runningLoad()
	var events []keyspace.Event
	for _, key := range []string{"a", prefix + "1"} {
		l := mutex(key, "x", 10*time.Minute)
		l.Waiters = []keyspace.Waiter{{ID: "vm:15837~1fe0a1b2c3d4"}}
		events = append(events, keyspace.Event{At: before(0), Kind: keyspace.WaiterJoined, Lock: l, Waiter: l.Waiters[0]})
	}
	w.Source = holding(events[0].Lock, events[1].Lock).watched(keyspace.Push, &events)
	drive(t, w, func(d *driver) {
		d.size(140, 30).wait(time.Second).press("6", "/").enter("waiter").press("enter")
		d.want("vm:15837~1fe0", "load vm:15837 ").wantNot("load vm:15837~", "10 m 00 left")
	})
}

// redlockConfig returns a Config with a Redlock on five servers, two of which are down.
func redlockConfig(w Config) Config {
	v := &fakeServer{}
	var names []string
	for i := range 5 {
		addr := fmt.Sprintf("127.0.0.1:700%d", i+1)
		names = append(names, addr)
		n := keyspace.Node{Server: keyspace.Server{Addr: addr, Role: "master", Version: "7.0.15"}, Up: true, Ping: 180 * time.Microsecond, Keys: 12, Locks: 3}
		if i == 1 || i == 4 {
			n = keyspace.Node{Server: keyspace.Server{Addr: addr}, Error: "dial tcp: connection refused"}
		}
		v.nodes = append(v.nodes, n)
	}
	lock := func(key, owner string, tokens ...string) keyspace.Lock {
		l := mutex(key, owner, 8*time.Second)
		l.Kind, l.Format, l.Node = keyspace.Redlock, "redsync", strings.Join(names, ",")
		for i, token := range tokens {
			l.Votes = append(l.Votes, keyspace.Vote{Node: names[i], Token: token, Unreachable: token == "?", Expires: l.Expires})
			if token == "?" {
				l.Votes[i].Token = ""
			}
		}
		return l
	}
	v.locks = []keyspace.Lock{
		lock("redlock:invoices", "9f3c", "9f3c", "?", "9f3c", "9f3c", "?"),
		lock("redlock:orphan", "77aa", "77aa", "?", "", "", "?"),
		lock("redlock:split", "1111", "1111", "?", "2222", "", "?"),
	}
	w.Source, w.Quorum = v, names
	return w
}

func TestAVoteOfEachServerIsShown(t *testing.T) {
	drive(t, redlockConfig(testConfig()), func(d *driver) {
		d.press("4").want("5 nodes", "2 down", "connection refused", "a majority is 3")
		for key, want := range map[string][]string{
			"redlock:invoices": {"A", "✗", "A", "A", "✗", "3/5", "✓"},
			"redlock:orphan":   {"B", "✗", "·", "·", "✗", "1/5", "◐"},
			"redlock:split":    {"C", "✗", "D", "·", "✗", "1/5", "◐"},
		} {
			got := strings.Fields(d.line(key))
			check.True(t, strings.Join(got[1:8], " ") == strings.Join(want, " "), "%s: %q, want %q", key, got, want)
		}
	})
}
