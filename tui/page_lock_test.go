package tui

import (
	"fmt"
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
	l.Holders = append(l.Holders, keyspace.Holder{ID: "web-2", Count: 1})
	drive(t, Config{Source: holding(l)}, func(d *driver) {
		d.want(" 2/3 ").size(140, 40).want("HOLDS", " 2/3 ").press("enter").want("2 of 3 permits in use")
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

// Without a watch that reads every change at once, the length of a lease is not known, and the page does not
// invent it.
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
	holds := c.lanes[keyspace.ID{Key: "a"}].holds
	check.True(t, holds[0].letter != holds[1].letter && holds[0].letter == holds[2].letter && holds[1].owner == len(letters),
		"the letters of pay-1, pay-3 and pay-1 are %d %d %d", holds[0].letter, holds[1].letter, holds[2].letter)
	for i := range 2 * len(letters) { // the letter seen least recently is used again
		begin("a", fmt.Sprint("batch-", i), time.Duration(6+i)*time.Second)
	}
	recent := map[int]bool{}
	holds = c.lanes[keyspace.ID{Key: "a"}].holds
	for _, h := range holds[len(holds)-len(letters):] {
		recent[h.letter] = true
	}
	check.True(t, len(recent) == len(letters), "the last %d owners have %d letters", len(letters), len(recent))
}
