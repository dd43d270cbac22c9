package tui

import (
	"strings"
	"testing"
	"time"
)

// A snoozed finding does not count in the header or in the order of the locks.
// It stays in the list with the time when the snooze ends, and then counts
// again.
func TestASnoozedFindingIsOutOfTheWayUntilItsTimeIsOver(t *testing.T) {
	drive(t, world(), func(d *driver) {
		first := func() string { return d.rows()[0] }
		d.want("2 findings")
		if !strings.Contains(first(), "job:nightly") {
			t.Fatalf("the first lock is %q", first())
		}
		d.press("5").want("▲ 1 critical").press("z").want("1 finding ", "1 snoozed", "snoozed, back in 1 h 00: Held for 3 h 12 without a deadline")
		if line := d.line("▌"); !strings.Contains(line, "more than 10 m is long") || strings.Contains(line, "snoozed") {
			t.Errorf("the cursor is not on the next finding, but on %q", line)
		}
		d.press("z").want("0 findings", "2 snoozed")
		d.press("1").want("no findings", "2 snoozed")
		if line := first(); strings.Contains(line, "job:nightly") || strings.Contains(line, "▲") {
			t.Errorf("the first lock is still %q", line)
		}
		d.press("5", "home", "z").want("1 snoozed", "1 finding ").press("home", "z").want("2 snoozed")
		d.press(":").enter("snooze 2s").press("enter").want("z snoozes for 2 s")
		d.press("home", "z", "home", "z").wait(3*time.Second).want("▲ 1 critical", "1 snoozed")
		d.wait(time.Hour).want("job:nightly").wantNot("snoozed")
	})
}

func TestAllOfAKindOrOfALockAreSnoozedAtOnce(t *testing.T) {
	v := office()
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

func TestWhereNothingIsWrongThereIsNothingToSnooze(t *testing.T) {
	v := office()
	v.locks = v.locks[:0]
	drive(t, Config{Source: v}, func(d *driver) {
		d.press("5", "z").want("no finding to snooze")
		d.press(":").enter("snooze banana").press("enter").want("a duration from 1 s on")
	})
}
