package keyspace_test

import (
	"fmt"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// t0 is the start of each test, on the server's clock.
var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at returns the time ms milliseconds after t0.
func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

// holder returns a holder that holds from t0 until so many milliseconds later.
// 0 means without a deadline.
func holder(id string, until int) keyspace.Holder {
	h := keyspace.Holder{ID: id, Depth: 1, Since: t0}
	if until != 0 {
		h.Expires = at(until)
	}
	return h
}

func mutex(h ...keyspace.Holder) keyspace.Lock {
	l := keyspace.Lock{Key: "k", Kind: keyspace.Mutex, Holders: h}
	for _, h := range h {
		if h.Expires.After(l.Expires) {
			l.Expires = h.Expires
		}
	}
	return l
}

func waitedFor(l keyspace.Lock, ids ...string) keyspace.Lock {
	for _, id := range ids {
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: id})
	}
	return l
}

// mode and times return a holder with another mode or count.
func mode(h keyspace.Holder, m keyspace.Mode) keyspace.Holder {
	h.Mode = m
	return h
}

func times(h keyspace.Holder, n int) keyspace.Holder {
	h.Depth = n
	return h
}

// The first snapshot is of 1 s, the second of 2 s.
func TestDiffSaysWhatHappened(t *testing.T) {
	a, b := holder("a", 10_000), holder("b", 11_900)
	r1, r2 := mode(holder("r1", 10_000), keyspace.Read), mode(holder("r2", 10_000), keyspace.Read)
	for _, c := range []struct {
		name     string
		old, now []keyspace.Lock
		want     []string
	}{
		{"nothing", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(a)}, nil},
		{"a new lock", nil, []keyspace.Lock{mutex(a)}, []string{"acquired a"}},
		{"a lock went before its deadline", []keyspace.Lock{mutex(a)}, nil, []string{"released a 2s"}},
		{"a lock went just before its deadline", []keyspace.Lock{mutex(holder("a", 2060))}, nil, []string{"released a 2s"}},
		{"a lock went at its deadline", []keyspace.Lock{mutex(holder("a", 2040))}, nil, []string{"expired a 2s"}},
		{"a lock went after its deadline", []keyspace.Lock{mutex(holder("a", 1500))}, nil, []string{"expired a 1.5s"}},
		{"a lock without a deadline went", []keyspace.Lock{mutex(holder("a", 0))}, nil, []string{"released a 2s"}},
		{"an unknown begin", []keyspace.Lock{mutex(keyspace.Holder{ID: "a", Expires: at(9000)})}, nil, []string{"released a"}},
		{"handed on", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(b)}, []string{"released a 2s", "acquired b"}},
		{"handed on after the deadline", []keyspace.Lock{mutex(holder("a", 1200))}, []keyspace.Lock{mutex(b)}, []string{"expired a 1.2s", "acquired b"}},
		{"another under the same deadline", []keyspace.Lock{mutex(holder("a", 10_007))}, []keyspace.Lock{mutex(holder("b", 10_007))}, []string{"stolen a 2s", "acquired b"}},
		{"another under about the same deadline", []keyspace.Lock{mutex(holder("a", 10_007))}, []keyspace.Lock{mutex(holder("b", 10_012))}, []string{"released a 2s", "acquired b"}},
		{"readers under the same deadline", []keyspace.Lock{mutex(r1)}, []keyspace.Lock{mutex(r2)}, []string{"released r1 2s", "acquired r2"}},
		{"others without a deadline", []keyspace.Lock{mutex(holder("a", 0))}, []keyspace.Lock{mutex(holder("b", 0))}, []string{"released a 2s", "acquired b"}},
		{"renewed", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(holder("a", 11_000))}, []string{"renewed a"}},
		{"read a little late", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(holder("a", 10_020))}, nil},
		{"shortened", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(holder("a", 5000))}, nil},
		{"persisted", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(holder("a", 0))}, []string{"ttl-lost "}},
		{"given a deadline", []keyspace.Lock{mutex(holder("a", 0))}, []keyspace.Lock{mutex(a)}, nil},
		{"entered again", []keyspace.Lock{mutex(a)}, []keyspace.Lock{mutex(times(a, 3))}, []string{"reentered a"}},
		{"left once", []keyspace.Lock{mutex(times(a, 3))}, []keyspace.Lock{mutex(times(a, 2))}, []string{"left a"}},
		{"a writer went on as a reader", []keyspace.Lock{mutex(mode(a, keyspace.Write))}, []keyspace.Lock{mutex(mode(a, keyspace.Read))}, []string{"mode-changed a"}},
		{"another reader", []keyspace.Lock{mutex(r1)}, []keyspace.Lock{mutex(r1, r2)}, []string{"acquired r2"}},
		{"a reader went", []keyspace.Lock{mutex(r1, r2)}, []keyspace.Lock{mutex(r2)}, []string{"released r1 2s"}},
		{"a reader prolonged the lock of all", []keyspace.Lock{mutex(r1, r2)},
			[]keyspace.Lock{mutex(mode(holder("r1", 12_000), keyspace.Read), mode(holder("r2", 12_000), keyspace.Read))}, []string{"renewed "}},
		{"a reader prolonged its own hold", []keyspace.Lock{mutex(r1, r2)},
			[]keyspace.Lock{with(mutex(mode(holder("r1", 12_000), keyspace.Read), r2), func(l *keyspace.Lock) { l.Expires = at(13_000) })}, []string{"renewed r1"}},
		{"a waiter joined", []keyspace.Lock{mutex(a)}, []keyspace.Lock{waitedFor(mutex(a), "w")}, []string{"waiter-joined w"}},
		{"a waiter left", []keyspace.Lock{waitedFor(mutex(a), "v", "w")}, []keyspace.Lock{waitedFor(mutex(a), "w")}, []string{"waiter-left v"}},
		{"the waiter got it", []keyspace.Lock{waitedFor(mutex(a), "b")}, []keyspace.Lock{mutex(b)}, []string{"handed-over a 2s", "acquired b"}},
		{"a later waiter acquired it", []keyspace.Lock{waitedFor(mutex(a), "v", "b")}, []keyspace.Lock{waitedFor(mutex(b), "v")}, []string{"released a 2s", "acquired b"}},
		{"all are gone", []keyspace.Lock{waitedFor(mutex(a), "w")}, nil, []string{"released a 2s", "waiter-left w"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := keyspace.Snapshot{At: at(1000), Locks: snapshotOf(c.old...).Locks, Complete: true}
			now := keyspace.Snapshot{At: at(2000), Locks: snapshotOf(c.now...).Locks, Complete: true}
			events := keyspace.Diff(old, now)
			check.DeepEqual(t, words(events), c.want)
			for _, e := range events {
				check.True(t, e.Lock.Key == "k" && e.At.Equal(now.At), "it is of the lock %q at %v", e.Lock.Key, e.At)
			}
		})
	}
}

// words describes events in short form.
func words(events []keyspace.Event) []string {
	var all []string
	for _, e := range events {
		word := fmt.Sprintf("%s %s", e.Kind, e.Holder.ID+e.Waiter.ID)
		if e.Held > 0 {
			word += " " + e.Held.String()
		}
		all = append(all, word)
	}
	return all
}

// Before the first pass has ended, a new lock may be an old one.
func TestLocksOfTheFirstPassAreDiscovered(t *testing.T) {
	lock := []keyspace.Lock{mutex(holder("a", 9000))}
	for _, c := range []struct{ before, now bool }{{false, false}, {false, true}, {true, false}} {
		old := keyspace.Snapshot{Complete: c.before}
		now := keyspace.Snapshot{Locks: snapshotOf(lock...).Locks, Complete: c.now}
		check.DeepEqual(t, words(keyspace.Diff(old, now)), []string{"appeared a"}, "complete %v then %v", c.before, c.now)
	}
}

// The same key on another node, or in another database, is another lock.
func TestDiffTellsLocksApartByWhereTheyAre(t *testing.T) {
	here, there := mutex(holder("a", 9000)), mutex(holder("b", 9000))
	here.Node, there.Node = "one:6379", "two:6379"
	old := keyspace.Snapshot{At: at(1000), Locks: []*keyspace.Lock{&here}, Complete: true}
	now := keyspace.Snapshot{At: at(2000), Locks: []*keyspace.Lock{&here, &there}, Complete: true}
	check.DeepEqual(t, words(keyspace.Diff(old, now)), []string{"acquired b"})
}
