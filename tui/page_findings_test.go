package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// A snoozed finding does not count in the header or in the order of the locks.
// It stays in the list with the time when the snooze ends, and then counts
// again.
func TestASnoozedFindingIsHiddenUntilTheSnoozeEnds(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		first := func() string { return d.rows()[0] }
		d.want("2 findings")
		check.Require(t, strings.Contains(first(), "job:nightly"), "the first lock is %q", first())
		d.press("5").want("▲ 1 critical").press("z").want("1 finding ", "1 snoozed", "snoozed, back in 1 h 00: Held for 3 h 12 without a deadline")
		d.wantLine("▌", "the limit is 10 m").wantNotInLine("▌", "snoozed").press("z").want("0 findings", "2 snoozed")
		d.press("1").want("no findings", "2 snoozed")
		line := first()
		check.True(t, !strings.Contains(line, "job:nightly") && !strings.Contains(line, "▲"), "the first lock is still %q", line)
		d.press("5", "home", "z").want("1 snoozed", "1 finding ").press("home", "z").want("2 snoozed")
		d.press(":").enter("snooze 2s").press("enter").want("z snoozes for 2 s")
		d.press("home", "z", "home", "z").wait(3*time.Second).want("▲ 1 critical", "1 snoozed")
		time.Sleep(time.Hour - time.Minute) // the screen takes no snapshots
		d.wait(time.Minute).want("job:nightly").wantNot("snoozed")
	})
}

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

func TestSnoozeWithoutAFindingIsRejected(t *testing.T) {
	v := sampleServer()
	v.locks = v.locks[:0]
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5", "z").want("no finding to snooze")
		d.press(":").enter("snooze banana").press("enter").want("a duration from 1 s on")
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

func TestARiskToAllLocksIsAFindingAboutTheServer(t *testing.T) {
	v := sampleServer()
	v.evicts = "volatile-ttl"
	v.locks = v.locks[:0]
	drive(t, Config{Source: v}, func(d *driver) {
		d.want("1 finding", "server: 127.0.0.1:6379 evicts")
		d.press("5").want("server", "127.0.0.1:6379 evicts keys", "Keep locks on a separate server")
		d.press("enter").want("this is about a server; 4 shows them").press("p").want("evicts keys")
		text := d.screen()
		check.False(t, strings.Contains(text[strings.Index(text, "LOCK"):], "127.0.0.1"), "the address is shown in spite of p:\n%s", text)
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

func TestTheLocksWithFindingsCanBeFiltered(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.press("/").enter("finding").want("1 of 8", "job:nightly").wantNot("rw:catalog")
		d.press("ctrl+u").enter("!finding").want("7 of 8").press("ctrl+u").enter("never-exp").want("1 of 8")
	})
}
