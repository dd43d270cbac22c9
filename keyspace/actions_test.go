package keyspace_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestTheConsequenceSaysHowTheLockEnds(t *testing.T) {
	renewed := func(n int, last int, every time.Duration) func(*keyspace.Lock) {
		return func(l *keyspace.Lock) { l.Renewals, l.Renewed, l.RenewedEvery = n, at(last), every }
	}
	unchecked := func(l *keyspace.Lock) { l.Unchecked = true }
	const late = "it frees the next holder's lock"
	for name, c := range map[string]struct {
		what keyspace.Action
		lock keyspace.Lock
		seen int // ms after the hold began, as now
		want []string
		not  string
	}{
		"it was never renewed": {
			keyspace.ForceRelease, mutex(holder("a", 30_000)), 10_000,
			[]string{"h will still believe it holds the lock and keep working. It would end by itself in 20.0 s unless it is renewed."}, late,
		},
		"one read with an old token": {
			keyspace.ForceRelease, with(mutex(holder("a", 30_000)), func(l *keyspace.Lock) { l.Holders[0].Since, l.Holders[0].Late = at(10_000), 9*time.Second }), 10_000,
			[]string{"unless it is renewed, which one read does not show."}, late,
		},
		"it has no deadline": {keyspace.ForceRelease, mutex(holder("a", 0)), 10_000, []string{"It never ends by itself."}, "renewed"},
		"the deadline in its value has passed": {
			keyspace.ForceRelease, with(mutex(holder("a", 5000)), func(l *keyspace.Lock) { l.Stamped = true }), 10_000,
			[]string{"Its deadline passed 5.0 s ago: any client may take it."}, "would end",
		},
		"it is renewed": {
			keyspace.ForceRelease, with(mutex(holder("a", 12_500)), renewed(9, 9500, time.Second)), 10_000,
			[]string{"It will not end by itself: it was renewed 9 times, the last time 0.5 s ago, so a client that renews it is alive. Stop the holder first."}, "would end",
		},
		"the next renewal is late by less than half a period": {
			keyspace.ForceRelease, with(mutex(holder("a", 12_500)), renewed(9, 8600, time.Second)), 10_000, []string{"will not end by itself"}, "stopped",
		},
		"its renewals stopped": {
			keyspace.ForceRelease, with(mutex(holder("a", 40_000)), renewed(9, 10_000, time.Second)), 22_000,
			[]string{"Its renewals stopped 12.0 s ago (were every 1.0 s): it ends in 18.0 s unless they go on."}, "alive",
		},
		"it was renewed once, so that no period is known": {
			keyspace.ForceRelease, with(mutex(holder("a", 15_000)), renewed(1, 6000, 0)), 10_000,
			[]string{"It would end by itself in 5.0 s unless it is renewed again: it was renewed once, the last time 4.0 s ago."}, "alive",
		},
		"it is not renewed regularly": {
			keyspace.ForceRelease, with(mutex(holder("a", 15_000)), renewed(4, 6000, -time.Second)), 10_000,
			[]string{"unless it is renewed again: it was renewed 4 times, the last time 4.0 s ago."}, "stopped",
		},
		"its library unlocks without a check": {keyspace.ForceRelease, with(mutex(holder("a", 30_000)), unchecked), 10_000, []string{"When the old holder unlocks late, " + late}, "stopped"},
		"a deadline": {
			keyspace.Expire, mutex(holder("a", 0)), 10_000,
			[]string{"it ends in 30 s, even while h still works", "Then other clients may acquire it."}, late,
		},
		"a deadline, and its library unlocks without a check": {keyspace.Expire, with(mutex(holder("a", 0)), unchecked), 10_000, []string{late}, "nobody loses it"},
		"an extension of a renewed lock": {
			keyspace.Extend, with(mutex(holder("a", 12_500)), renewed(9, 9500, time.Second)), 10_000,
			[]string{"The next renewal undoes it if it sets the holder's own TTL again: it was renewed 9 times, the last time 0.5 s ago."}, late,
		},
	} {
		got := c.lock.Consequence(c.what, 30*time.Second, "h", at(c.seen), at(c.seen))
		for _, want := range c.want {
			check.True(t, strings.Contains(got, want), "%s: %q has no %q", name, got, want)
		}
		check.True(t, !strings.Contains(got, c.not), "%s: %q has %q", name, got, c.not)
	}
	l := mutex(holder("a", 30_000))
	check.Equal(t, l.Consequence(keyspace.Extend, 0, "h", at(0), at(0)), "", "an extension of a lock that nobody renews")
}

// Between two reads time passes without news: that no renewal was seen in it proves nothing.
func TestRenewalsHaveStoppedOnlyIfAReadShowsIt(t *testing.T) {
	l := with(mutex(holder("a", 40_000)), func(l *keyspace.Lock) { l.Renewals, l.Renewed, l.RenewedEvery = 9, at(10_000), 250*time.Millisecond })
	check.True(t, strings.Contains(l.Consequence(keyspace.ForceRelease, 0, "h", at(10_100), at(12_000)), "the last time 2.0 s ago, so a client that renews it is alive"), "no read since")
	check.True(t, strings.Contains(l.Consequence(keyspace.ForceRelease, 0, "h", at(11_000), at(12_000)), "Its renewals stopped 2.0 s ago"), "a read since")
}

func TestStillIsTheLockWithTheHoldsThatGoOn(t *testing.T) {
	a, b := holder("a", 20_000), holder("b", 30_000)
	a.Renewed = at(3000)
	two := with(mutex(a, b), func(l *keyspace.Lock) { l.Renewals, l.Renewed, l.RenewedEvery = 7, at(5000), time.Second })
	got, ok := two.Still(two.Holders)
	check.True(t, ok && len(got.Holders) == 2 && got.Renewals == 7, "both: %+v, %v", got, ok)
	got, ok = two.Still([]keyspace.Holder{a})
	check.True(t, ok && len(got.Holders) == 1 && got.Expires.Equal(a.Expires), "one: %+v, %v", got, ok)
	check.True(t, got.Renewals == 0 && got.Renewed.Equal(a.Renewed) && got.RenewedEvery == 0, "it has renewals of the other: %+v", got)
	check.True(t, len(two.Holders) == 2, "Still changed the lock: %+v", two)

	for name, had := range map[string]keyspace.Holder{
		"another token":             holder("c", 20_000),
		"another mode":              {ID: "a", Mode: keyspace.Write, Since: a.Since},
		"one token, acquired again": {ID: "a", Since: a.Since.Add(-5 * time.Second)},
	} {
		_, ok = two.Still([]keyspace.Holder{had})
		check.False(t, ok, "%s: it still holds the lock", name)
	}
	had := a
	had.Since = a.Since.Add(-20 * time.Millisecond) // the clock of its client is fast
	_, ok = two.Still([]keyspace.Holder{had})
	check.True(t, ok, "two reads of one begin")
	_, ok = (keyspace.Lock{}).Still([]keyspace.Holder{a})
	check.False(t, ok, "nobody holds it")
}

// A format without Extend can be released, and says so.
func TestALockWhoseDeadlineIsFixedCanBeReleased(t *testing.T) {
	one := func(l keyspace.Lock) []string { return []string{l.Key} }
	formats := []keyspace.Format{{
		About: keyspace.About{Name: "huey", Library: "huey"}, Actions: &keyspace.Actions{Keys: one, Args: one, ForceRelease: "return 1"},
		Decode: func(keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			return mutex(keyspace.Holder{ID: "a"}), keyspace.Certain
		},
	}}
	l, _ := formats[0].DecodeLock(keyspace.Entry{Key: "k"})
	_, err := keyspace.Scripts(formats, keyspace.Expire, l, time.Minute)
	check.True(t, errors.Is(err, keyspace.ErrReleaseOnly) && !errors.Is(err, keyspace.ErrNotSupported), "the refusal is %v", err)
	check.Must(keyspace.Scripts(formats, keyspace.ForceRelease, l, 0))(t)

	found := keyspace.Findings(keyspace.Snapshot{At: at(0), Locks: []*keyspace.Lock{&l}})
	check.Require(t, len(found) == 1 && found[0].ID == "never-expires", "found %+v", found)
	check.True(t, !strings.Contains(found[0].Remedy, "give the lock a deadline") && strings.Contains(found[0].Remedy, "release the lock"), "%s", found[0].Remedy)
	formats[0].Actions.Extend = "return 1"
	l, _ = formats[0].DecodeLock(keyspace.Entry{Key: "k"})
	found = keyspace.Findings(keyspace.Snapshot{At: at(0), Locks: []*keyspace.Lock{&l}})
	check.True(t, strings.Contains(found[0].Remedy, "give the lock a deadline"), "%s", found[0].Remedy)
}

// The screen and the commands put their words into the places of a remedy.
func TestAProblemIsListedOnceWithARemedyWithoutKeysAndCommands(t *testing.T) {
	seen := map[keyspace.Problem]bool{}
	for _, p := range slices.Concat(keyspace.FindingProblems(), slices.DeleteFunc(keyspace.Causes(), func(p keyspace.Problem) bool { return p.Remedy != "" })) {
		check.False(t, seen[p], "%v is listed twice", p)
		check.False(t, strings.Contains(p.Remedy, "locktop") || strings.Contains(p.Remedy, "--") || strings.Contains(p.Remedy, "screen"), "%s", p.Remedy)
		seen[p] = true
	}
}
