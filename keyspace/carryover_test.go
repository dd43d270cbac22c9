package keyspace

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// lookAt returns a complete snapshot of one lock at t0 plus so many seconds.
func lookAt(seconds int, l Lock) Snapshot {
	return Snapshot{At: began.Add(time.Duration(seconds) * time.Second), Locks: []*Lock{&l}, Complete: true}
}

// heldBy returns a lock with one holder that expires at t0 plus so many seconds.
func heldBy(id string, seconds int) Lock {
	expires := began.Add(time.Duration(seconds) * time.Second)
	return Lock{Key: "k", Expires: expires, Holders: []Holder{{ID: id, Depth: 1, Expires: expires}}}
}

func TestAHoldBeginsAtTheLookThatFirstShowsIt(t *testing.T) {
	first := CarryOver(Snapshot{}, lookAt(0, heldBy("a", 30)))
	check.True(t, first.Locks[0].Holders[0].Since.IsZero(), "on the first read it began at %v; that is unknown", first.Locks[0].Holders[0].Since)
	second := CarryOver(first, lookAt(1, heldBy("a", 30)))
	check.True(t, second.Locks[0].Holders[0].Since.IsZero(), "on the second read it began at %v; that is unknown", second.Locks[0].Holders[0].Since)
	look := lookAt(2, heldBy("b", 32))
	third := CarryOver(second, look)
	fourth := CarryOver(third, lookAt(3, heldBy("b", 32)))
	check.Equal(t, fourth.Locks[0].Holders[0].Since, third.At, "the next hold began at")
	check.True(t, look.Locks[0].Holders[0].Since.IsZero(), "the look itself was changed")
}

func TestANewLockBeginsNowOnlyIfEverythingHasBeenLookedAt(t *testing.T) {
	for _, complete := range []bool{true, false} {
		before := Snapshot{At: began, Complete: complete}
		now := CarryOver(before, lookAt(1, heldBy("a", 30)))
		check.Equal(t, !now.Locks[0].Holders[0].Since.IsZero(), complete, "after a look that was complete=%v its begin is known=", complete)
	}
}

func TestATokenWithATimeGivesTheBeginOfTheHold(t *testing.T) {
	lock := heldBy("a", 30)
	lock.Holders[0].Since = began.Add(-time.Hour)
	now := CarryOver(lookAt(0, heldBy("b", 30)), lookAt(1, lock))
	check.Equal(t, now.Locks[0].Holders[0].Since, began.Add(-time.Hour), "it began at")
}

// A client may make its token long before it gets the lock.
func TestATokenWithATimeGivesABoundOfAHoldThatWasNotSeenToBegin(t *testing.T) {
	h := Holder{Since: began, Late: time.Hour}
	for after, want := range map[time.Duration]string{0: "at most 1 h 00", 10 * time.Minute: "at most 1 h 10", 3 * time.Hour: "at least 3 h 00"} {
		check.Equal(t, h.Age(began.Add(after)).String(), want, "the age after %v", after)
	}
	_, still := Lock{Holders: []Holder{h}}.Still([]Holder{{Since: began.Add(-time.Minute)}}) // as a watch knows it
	check.True(t, still, "two reads of one token are two holds")
}

// A watched begin is that of the watch: the token has the time of the attempt, on the clock of the client.
func TestAWatchedHoldBeginsWhenItIsSeen(t *testing.T) {
	now := began.Add(time.Minute)
	d := Differ{At: now, Lag: 100 * time.Millisecond}
	for token, want := range map[time.Duration]time.Duration{-4 * time.Second: -100 * time.Millisecond, -20 * time.Millisecond: -20 * time.Millisecond, 4 * time.Second: 0} {
		l := heldBy("a", 90)
		l.Holders[0].Since = now.Add(token)
		seen := d.CarryOver(Lock{}, l, false, now)
		check.Equal(t, seen.Holders[0].Since.Sub(now), want, "the begin of a hold whose token is of %v", token)
		l.Holders[0].Since, l.Holders[0].Late = now, -token // as a format reads it
		seen = d.CarryOver(Lock{}, l, false, now)
		check.Equal(t, seen.Holders[0].Since.Sub(now), want, "the begin of a hold whose token is of %v, at the earliest", token)
		check.Equal(t, d.CarryOver(seen, l, true, now).Holders[0].Since.Sub(now), want, "its begin, as read again")
		check.Equal(t, seen.Holders[0].Late, 0, "its begin was seen, so it is late by")
		scan := d
		scan.Late = 3 * time.Second
		seen = scan.CarryOver(Lock{}, l, false, now)
		check.True(t, seen.Holders[0].Since.Equal(now) && seen.Holders[0].Late == max(0, min(-token, scan.Late)), "a scan found the hold with a token of %v: %+v", token, seen.Holders)
	}
}

func TestRenewalsAreCountedForAsLongAsTheHolderStays(t *testing.T) {
	s := CarryOver(Snapshot{}, lookAt(0, heldBy("a", 30)))
	for i, step := range []struct {
		lock              Lock
		renewals, renewed int
		set, full         time.Duration // TTL
	}{
		{heldBy("a", 30), 0, 0, 0, 30 * time.Second},
		{heldBy("a", 32), 1, 2, 30 * time.Second, 30 * time.Second}, // 2 s later
		{heldBy("a", 32), 1, 2, 30 * time.Second, 30 * time.Second}, // unchanged
		{heldBy("a", 34), 2, 4, 30 * time.Second, 30 * time.Second},
		{heldBy("a", 20), 2, 4, 15 * time.Second, 15 * time.Second}, // shortened
		{heldBy("b", 36), 0, 0, 30 * time.Second, 30 * time.Second}, // another holder
	} {
		s = CarryOver(s, lookAt(i+1, step.lock))
		l := s.Locks[0]
		check.True(t, l.Renewals == step.renewals && (step.renewals == 0 || l.Renewed.Equal(began.Add(time.Duration(step.renewed)*time.Second))),
			"look %d: %d renewals, the last one at %v, want %d and %d s", i+1, l.Renewals, l.Renewed, step.renewals, step.renewed)
		full, watched := l.FullTTL()
		check.True(t, l.TTLSet == step.set && full == step.full && watched == (step.set > 0), "look %d: TTL %v, in full %v", i+1, l.TTLSet, full)
	}
}

// A request of another client belongs to the hold that it found: the next holder may be the
// client that asked.
func TestARequestIsKnownForAsLongAsTheHolderStays(t *testing.T) {
	asked := heldBy("a", 30)
	asked.AskedAt = began
	s := CarryOver(lookAt(0, asked), lookAt(1, heldBy("a", 32)))
	l := s.Locks[0]
	check.True(t, l.AskedAt.Equal(began) && l.Asked(s.At) && !l.Asked(s.At.Add(AskedWithin)), "it was asked for at %v, want %v and for %v", l.AskedAt, began, AskedWithin)
	s = CarryOver(s, lookAt(2, heldBy("b", 32)))
	check.True(t, s.Locks[0].AskedAt.IsZero() && !s.Locks[0].Asked(s.At), "under another holder it was asked for at %v", s.Locks[0].AskedAt)
}

// Two addresses of one server are one vote: no client holds the lock with it alone.
func TestAServerWithTwoAddressesHasOneVoteInARedlock(t *testing.T) {
	l := heldBy("3f2b8c6a1d4e4a7b9c5d8e0f2a4b6c8d", 30)
	part := func(addr, run string, locks ...*Lock) Part {
		return Part{Addr: addr, Snapshot: Snapshot{At: began, Complete: true, Locks: locks, Server: Server{RunID: run}}}
	}
	merged := Merge([]Part{part("127.0.0.1:1", "a", &l), part("localhost:1", "a", &l), part("127.0.0.1:2", "b"), part("127.0.0.1:3", "")}, MergeOptions{Redlock: true})
	check.Equal(t, len(merged.Locks[0].Votes), 3, "votes")
	check.Equal(t, merged.Locks[0].State(began), Partial, "the state")
	check.False(t, merged.Complete, "it is complete")
	check.Equal(t, strings.Join(merged.Problems, ""), "127.0.0.1:1 and localhost:1 are one server, which has one vote", "the problems")
}

// The databases of a server are no further servers.
func TestAServerWithSeveralDatabasesHasOneVoteInARedlock(t *testing.T) {
	one, other := heldBy("3f2b8c6a1d4e4a7b9c5d8e0f2a4b6c8d", 30), heldBy("0b9f2c7e3d414c6a9e587a1d2f3b4c5e", 30)
	other.DB = 3
	var parts []Part
	for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} {
		for _, l := range []Lock{one, other} {
			parts = append(parts, Part{Addr: addr, Snapshot: Snapshot{At: began, Complete: true, Locks: []*Lock{&l}}})
		}
	}
	merged := Merge(parts, MergeOptions{Redlock: true})
	check.Equal(t, len(merged.Locks), 2, "locks")
	for _, l := range merged.Locks {
		check.True(t, len(l.Votes) == 3 && l.State(began) == Held && l.Node == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "%+v", l)
	}
}

// A client that asks for a Redlock asks one server after the other.
func TestARedlockHasTheLatestRequestForOneOfItsCopies(t *testing.T) {
	copyOn := func(addr string, asked time.Time) Part {
		l := heldBy("token-of-a-redlock", 30)
		l.Confidence, l.Node, l.AskedAt = Likely, addr, asked
		return Part{Snapshot: lookAt(2, l), Addr: addr}
	}
	s := Merge([]Part{copyOn("a:1", began), copyOn("b:1", began.Add(time.Second)), copyOn("c:1", time.Time{})}, MergeOptions{Redlock: true, MinConfidence: Likely})
	check.Equal(t, len(s.Locks[0].Votes), 3, "votes")
	check.Equal(t, s.Locks[0].AskedAt, began.Add(time.Second), "it was asked for at")
	later := Merge([]Part{copyOn("a:1", began.Add(2*time.Second)), copyOn("b:1", began), copyOn("c:1", began)}, MergeOptions{Redlock: true, MinConfidence: Likely})
	check.Equal(t, CarryOver(s, later).Locks[0].AskedAt, began.Add(2*time.Second), "later it was asked for at")
}

// Each of several holders renews for itself.
func TestARenewalOfOnePermitIsNotOneOfTheOthers(t *testing.T) {
	pool := func(a, b int) Lock {
		l := heldBy("a", a)
		l.Holders = append(l.Holders, heldBy("b", b).Holders[0])
		l.Expires = began.Add(time.Duration(max(a, b)) * time.Second)
		return l
	}
	s := CarryOver(Snapshot{}, lookAt(0, pool(30, 31)))
	s = CarryOver(s, lookAt(5, pool(30, 36)))
	s = CarryOver(s, lookAt(6, pool(30, 36)))
	h := s.Locks[0].Holders
	check.True(t, h[0].Renewed.IsZero() && h[1].Renewed.Equal(began.Add(5*time.Second)), "the renewals were at %v and %v", h[0].Renewed, h[1].Renewed)
	s = CarryOver(s, lookAt(7, pool(35, 36))) // the deadline of the lock stays
	check.Equal(t, s.Locks[0].Holders[0].Renewed, began.Add(7*time.Second), "a renewed at")
}

// Waiters that are only counted wait in vain only if the lock is free: a semaphore without permits
// left has holders that it does not store, and a latch waits for its count.
func TestAFreeLockWithCountedWaitersIsUnheld(t *testing.T) {
	for _, c := range []struct {
		name string
		lock Lock
		free bool
	}{
		{"a semaphore with permits", Lock{Key: "k", Kind: Semaphore, Remaining: 3, Waiting: 1}, true},
		{"a semaphore without permits", Lock{Key: "k", Kind: Semaphore, Waiting: 1}, false},
		{"a latch", Lock{Key: "k", Kind: Latch, Remaining: 3, Waiting: 1}, false},
		{"a semaphore without waiters", Lock{Key: "k", Kind: Semaphore, Remaining: 3}, false},
		{"a mutex", Lock{Key: "k", Kind: Mutex, Waiting: 1}, true},
	} {
		now := CarryOver(CarryOver(Snapshot{}, lookAt(0, c.lock)), lookAt(3, c.lock))
		l := now.Locks[0]
		check.Equal(t, l.UnheldSince.Equal(began), c.free, "%s has been free since the first look", c.name)
		text := waitersNoHolder(l, now.At)
		check.Equal(t, text != "", c.free, "%s has a finding", c.name)
		if c.free {
			check.Equal(t, strings.Contains(text, "more permits"), l.Kind == Semaphore, "%s: %q names that the waiter may want more", c.name, text)
		}
	}
}

// A hold whose last known deadline was over before its new lease began may have ended in between.
func TestALeaseThatBeginsAfterTheLastDeadlineMayBeANewHold(t *testing.T) {
	for name, c := range map[string]struct {
		expires, at int // after the last known deadline
		ttl         time.Duration
		missed      bool
		want        string
	}{
		"renewed in time":                   {5, -3, 8 * time.Second, false, ""},
		"renewed in time, and read late":    {7, 1, 8 * time.Second, false, ""},
		"after a time without answer":       {9, 5, 8 * time.Second, true, "or acquired"},
		"in time before the answer":         {7, 5, 8 * time.Second, true, ""},
		"a longer lease in time":            {60, -1, 8 * time.Second, true, ""},
		"of unknown length after an outage": {7, 5, 0, true, "or acquired"},
		"of unknown length in time":         {7, -1, 0, true, ""},
		"of unknown length":                 {7, 5, 0, false, ""},
	} {
		was := heldBy("a", 30)
		was.TTLSet, was.Holders[0].Since = c.ttl, began
		d := Differ{At: began.Add(time.Duration(30+c.at) * time.Second), MissedEvents: c.missed, Slack: ExpirySlack, Jitter: DeadlineJitter}
		l := d.CarryOver(was, heldBy("a", 30+c.expires), true, time.Time{})
		d.Changed(was, l)
		check.True(t, len(d.Events) == 1 && d.Events[0].Kind == Renewed && d.Events[0].MayHave() == c.want, "%s: the events are %+v", name, d.Events)
		check.Equal(t, l.Holders[0].Since.IsZero(), c.want != "", "%s: its begin is unknown", name)
	}
}

// A release is announced only if its message has proven it. A hold that ended while the server could not be read may
// have been released.
func TestOnlyAProvenReleaseIsAnnounced(t *testing.T) {
	for _, reason := range []EventKind{"", Released, Evicted} {
		d := Differ{At: time.Unix(9, 0), Reason: reason}
		d.Removed(Lock{Key: "a", Holders: []Holder{{ID: "x"}}})
		check.True(t, len(d.Events) == 1 && d.Events[0].Announced == (reason == Released), "with the reason %q: %+v", reason, d.Events)
	}
	d := Differ{At: time.Unix(9, 0), MissedEvents: true}
	d.Removed(Lock{Key: "a", Holders: []Holder{{ID: "x", Expires: time.Unix(8, 0)}}})
	check.True(t, d.Events[0].Kind == Expired && d.Events[0].MayHave() == "or released", "after an outage: %+v", d.Events)
}
