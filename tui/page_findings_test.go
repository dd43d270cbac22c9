package tui

import (
	"fmt"
	"testing"
	"time"

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
