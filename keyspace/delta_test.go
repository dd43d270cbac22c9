package keyspace

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// randomly returns a snapshot of some of a hundred locks, each in one of a few states.
func randomly(r *rand.Rand, at time.Time) Snapshot {
	s := Snapshot{At: at, Complete: true}
	for i := range 100 {
		if r.IntN(3) == 0 {
			continue
		}
		l := &Lock{Key: fmt.Sprintf("lock:%03d", i), Kind: Mutex, DB: i % 2, Expires: at.Add(time.Hour)}
		if r.IntN(2) == 0 {
			l.Holders = []Holder{{ID: fmt.Sprint(r.IntN(3)), Depth: 1, Expires: l.Expires}}
		}
		s.Locks = append(s.Locks, l)
	}
	slices.SortFunc(s.Locks, func(a, b *Lock) int { return a.ID().Compare(b.ID()) })
	return s
}

func TestAChangeMakesTheLaterSnapshotFromTheEarlier(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Unix(1_700_000_000, 0)
	first, was := Snapshot{}, Snapshot{}
	var all []Delta
	for range testtier.Size(80, 200, 200) {
		now := randomly(r, at)
		c := DeltaOf(was, now)
		got := c.Apply(was)
		check.Require(t, reflect.DeepEqual(got, now), "made %v, want %v", got, now)
		all = append(all, c)
		joined := MergeDeltas(all).Apply(first)
		check.Require(t, reflect.DeepEqual(joined, now), "%d changes joined make %v, want %v", len(all), joined, now)
		was = now
	}
}

func TestTwoReadingsOfOneDeadlineAreNoChange(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	l := Lock{Key: "a", Expires: at, Holders: []Holder{{ID: "x", Expires: at}}}
	later := Lock{Key: "a", Expires: at.Add(DeadlineJitter), Holders: []Holder{{ID: "x", Expires: at.Add(DeadlineJitter)}}}
	check.Equal(t, len(DeltaOf(Snapshot{Locks: []*Lock{&l}}, Snapshot{Locks: []*Lock{&later}}).Locks), 0, "changes of a deadline that is read again")
	later.Expires = at.Add(2 * DeadlineJitter)
	check.True(t, len(DeltaOf(Snapshot{Locks: []*Lock{&l}}, Snapshot{Locks: []*Lock{&later}}).Locks) == 1, "a renewal is no change")
}

// TestEveryFieldOfALockCanChange fails with the name of a field that SameLock does not compare.
func TestEveryFieldOfALockCanChange(t *testing.T) {
	holder := Lock{Holders: []Holder{{}}}
	waiter := Lock{Waiters: []Waiter{{}}}
	vote := Lock{Votes: []Vote{{}}}
	for name, c := range map[string]struct {
		base Lock
		part func(*Lock) reflect.Value
	}{
		"Lock":     {Lock{}, func(l *Lock) reflect.Value { return reflect.ValueOf(l).Elem() }},
		"Observed": {Lock{}, func(l *Lock) reflect.Value { return reflect.ValueOf(&l.Observed).Elem() }},
		"Holder":   {holder, func(l *Lock) reflect.Value { return reflect.ValueOf(&l.Holders[0]).Elem() }},
		"Waiter":   {waiter, func(l *Lock) reflect.Value { return reflect.ValueOf(&l.Waiters[0]).Elem() }},
		"Vote":     {vote, func(l *Lock) reflect.Value { return reflect.ValueOf(&l.Votes[0]).Elem() }},
	} {
		for i := range c.part(&c.base).NumField() {
			other := c.base
			other.Holders, other.Waiters = slices.Clone(c.base.Holders), slices.Clone(c.base.Waiters)
			other.Votes = slices.Clone(c.base.Votes)
			field := c.part(&other).Type().Field(i)
			switch field.Name {
			case "Observed": // has its own row
				continue
			case "ReadAt": // not part of the state
				continue
			case "Key", "DB": // they identify the lock
				continue
			case "Node":
				if name == "Lock" {
					continue
				}
			}
			check.Fill(c.part(&other).Field(i), new(int))
			check.True(t, !SameLock(&c.base, &other), "%s.%s is not compared", name, field.Name)
		}
	}
}

func TestTheLastTenMinutesCanBeSeenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		at := time.Unix(1_700_000_000, 0)
		var h History
		var all []Snapshot
		for range 200 {
			s := randomly(r, at)
			var was Snapshot
			if len(all) > 0 {
				was = all[len(all)-1]
			}
			h.Add(s, DeltaOf(was, s), was.At)
			synctest.Wait() // what is dropped is known with the next snapshot
			all = append(all, s)
			at = at.Add(10 * time.Second)
		}
		last := all[len(all)-1].At
		kept := 0
		for _, want := range all {
			got, ok := h.At(want.At.Add(time.Millisecond))
			age := last.Sub(want.At)
			check.Require(t, ok == (age <= maxSnapshotAge+maxSnapshotAge/10) || age >= maxSnapshotAge, "a snapshot of %v ago: kept is %v", age, ok)
			if ok {
				kept++
				check.Require(t, reflect.DeepEqual(got, want), "the snapshot of %v is not as it was", want.At)
			}
		}
		check.True(t, kept >= 60 && kept <= 70, "%d snapshots are kept of the 60 of ten minutes", kept)
		tight := History{Memory: 190 << 10}
		drops := 0
		for _, s := range all {
			was := tight.base.At
			tight.Add(s, Delta{}, time.Time{}) // of another snapshot: it computes the difference
			if r.IntN(2) == 0 {                // else it waits
				synctest.Wait()
			}
			if !tight.base.At.Equal(was) {
				drops++
			}
			check.Require(t, tight.bytes <= tight.Memory, "it has %d bytes", tight.bytes)
		}
		check.True(t, drops <= len(all)/2, "%d snapshots are dropped in %d steps, which cost as much as that many views", len(all), drops)
		oldest, newest := tight.Span()
		check.True(t, newest.Equal(last) && last.Sub(oldest) <= 2*time.Minute && !oldest.Equal(newest), "190 KiB hold the snapshots from %v to %v", oldest, newest)
	})
}

// The snapshot of a Watcher may be older than the moment in which it was taken: the Watcher
// has measured the difference of the clocks.
func TestAnOldSnapshotDoesNotSetTheClockBack(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	answered := func(ago time.Duration, up bool) Node {
		return Node{Server: Server{Addr: ago.String()}, Up: up, AnsweredAt: now.Add(-ago)}
	}
	for _, c := range []struct {
		name  string
		s     Snapshot
		ahead time.Duration
		at    time.Time
	}{
		{"a scan", Snapshot{At: now.Add(3 * time.Second)}, 3 * time.Second, time.Time{}},
		{"a quiet server", Snapshot{At: now.Add(-16 * time.Second), Server: Server{Skew: time.Second}, Nodes: []Node{answered(17*time.Second, true)}}, time.Second, now.Add(-17 * time.Second)},
		{"the oldest answer", Snapshot{Nodes: []Node{answered(time.Second, true), answered(4*time.Second, true), answered(9*time.Second, false)}}, 0, now.Add(-4 * time.Second)},
	} {
		ahead, at := c.s.ClockAhead(now), c.s.AnsweredAt()
		check.True(t, ahead == c.ahead && at.Equal(c.at), "%s: ahead by %v, answered at %v; want %v, %v", c.name, ahead, at, c.ahead, c.at)
	}
}
