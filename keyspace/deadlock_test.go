package keyspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// thread returns an owner as Redisson stores it.
func thread(n int) string { return fmt.Sprintf("8743c9c0-0795-4907-87fd-%012d:%d", n, n) }

// contended returns a lock with holders and waiters that have been there for 2 s.
func contended(key string, holders, waiters []string) keyspace.Lock {
	l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Expires: t0.Add(time.Minute)}
	for _, id := range holders {
		l.Holders = append(l.Holders, keyspace.Holder{ID: id, Depth: 1, Since: t0.Add(-2 * time.Second)})
	}
	for _, id := range waiters {
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: id, Since: t0.Add(-2 * time.Second)})
	}
	return l
}

// snapshotOf returns a snapshot at t0.
func snapshotOf(locks ...keyspace.Lock) keyspace.Snapshot {
	s := keyspace.Snapshot{At: t0}
	for i := range locks {
		s.Locks = append(s.Locks, &locks[i])
	}
	return s
}

// ring returns locks of owners each of which waits for the lock of the next.
func ring(owners ...string) (locks []keyspace.Lock) {
	for i, owner := range owners {
		before := owners[(i+len(owners)-1)%len(owners)]
		locks = append(locks, contended(fmt.Sprintf("lock:%d", i+1), []string{owner}, []string{before}))
	}
	return locks
}

func TestDeadlocksAreCyclesOfWaits(t *testing.T) {
	a, b, c, d := thread(1), thread(2), thread(3), thread(4)
	permits := func(holders, waiters []string, left int) keyspace.Lock {
		l := contended("sem:1", holders, waiters)
		l.Kind, l.Limit, l.Remaining = keyspace.Semaphore, len(holders)+left, left
		return l
	}
	modes := func(l keyspace.Lock, held, waited keyspace.Mode) keyspace.Lock {
		for i := range l.Holders {
			l.Holders[i].Mode = held
		}
		for i := range l.Waiters {
			l.Waiters[i].Mode = waited
		}
		return l
	}
	changed := func(locks []keyspace.Lock, change func(*keyspace.Lock)) []keyspace.Lock {
		change(&locks[0])
		return locks
	}
	for name, tt := range map[string]struct {
		locks   []keyspace.Lock
		length  int
		certain bool
	}{
		"two":                   {ring(a, b), 2, true},
		"three":                 {ring(a, b, c), 3, true},
		"five":                  {ring(a, b, c, d, thread(5)), 5, true},
		"a chain":               {[]keyspace.Lock{contended("1", []string{a}, []string{b}), contended("2", []string{b}, []string{c})}, 0, false},
		"one behind a deadlock": {append(ring(a, b), contended("lock:3", []string{c}, nil), contended("lock:4", []string{b}, []string{c})), 2, true},
		"a dead waiter":         {changed(ring(a, b), func(l *keyspace.Lock) { l.Waiters[0].Expires = t0 }), 0, false},
		"a new wait":            {changed(ring(a, b), func(l *keyspace.Lock) { l.Waiters[0].Since = t0.Add(-time.Millisecond) }), 0, false},
		"a new hold":            {changed(ring(a, b), func(l *keyspace.Lock) { l.Holders[0].Since = t0.Add(-time.Millisecond) }), 0, false},
		"a single read":         {changed(ring(a, b), func(l *keyspace.Lock) { l.Waiters[0].Since = time.Time{} }), 2, false},
		"seen for a while": {changed(ring(a, b), func(l *keyspace.Lock) {
			l.Waiters[0].Since, l.Waiters[0].Seen = time.Time{}, t0.Add(-time.Second)
		}), 2, true},
		"processes": {ring("web-1:17", "web-2:40"), 2, false},
		"a process with two threads": {[]keyspace.Lock{
			contended("1", []string{"web-1:17"}, []string{"web-1:17"}), contended("2", []string{"web-1:17"}, []string{"web-1:17"}),
		}, 0, false},
		"a permit to come":      {[]keyspace.Lock{permits([]string{a, c, d}, []string{b}, 0), contended("lock:1", []string{b}, []string{a})}, 0, false},
		"a free permit":         {[]keyspace.Lock{permits([]string{a}, []string{b}, 1), contended("lock:1", []string{b}, []string{a})}, 0, false},
		"no permit to come":     {[]keyspace.Lock{permits([]string{a, c}, []string{b}, 0), contended("lock:1", []string{b}, []string{a, c})}, 2, true},
		"one of two readers":    {[]keyspace.Lock{modes(contended("rw:1", []string{a, c}, []string{b}), keyspace.Read, keyspace.Write), contended("lock:1", []string{b}, []string{a})}, 2, true},
		"readers beside":        {[]keyspace.Lock{modes(contended("rw:1", []string{a}, []string{b}), keyspace.Read, keyspace.Read), contended("lock:1", []string{b}, []string{a})}, 0, false},
		"a writer that reads":   {[]keyspace.Lock{modes(contended("rw:1", []string{a}, []string{b}), keyspace.Write, keyspace.Read), contended("lock:1", []string{b}, []string{a})}, 2, true},
		"a lock without holder": {append(ring(a, b)[:1], contended("lock:2", nil, []string{a})), 0, false},
	} {
		s := snapshotOf(tt.locks...)
		all := keyspace.Deadlocks(s)
		switch {
		case tt.length == 0 && len(all) > 0:
			t.Errorf("%s: %s", name, all[0].Text(t0))
		case tt.length > 0 && (len(all) != 1 || len(all[0].Waits) != tt.length || all[0].Certain != tt.certain):
			t.Errorf("%s: %+v", name, all)
		}
		found := keyspace.Findings(s)
		found = slices.DeleteFunc(found, func(f keyspace.Finding) bool { return !strings.Contains(f.ID, "deadlock") })
		check.True(t, len(found) == tt.length, "%s: %d findings", name, len(found))
	}
}

func TestADeadlockNamesItsCycleAndItsEnd(t *testing.T) {
	s := snapshotOf(ring(thread(3), thread(1), thread(2))...)
	s.Locks[1].Expires = t0.Add(10 * time.Second)
	want := "Deadlock: A waits for lock:3 of B, B waits for lock:1 of C, C waits for lock:2 of A. The first deadline ends it in 10 s, unless it is renewed."
	got := strings.NewReplacer(thread(1), "A", thread(2), "B", thread(3), "C").Replace(keyspace.Deadlocks(s)[0].Text(t0))
	check.True(t, got == want, "%s\nwant %s", got, want)
	for i := range s.Locks {
		s.Locks[i].Expires = time.Time{}
	}
	check.True(t, strings.HasSuffix(keyspace.Deadlocks(s)[0].Text(t0), "No deadline ends it."), "%s", keyspace.Deadlocks(s)[0].Text(t0))
}

// A label begins the tokens of package lock: each hold and each wait has another one.
func TestALabelJoinsTheTokensOfAProcess(t *testing.T) {
	locks := ring("web-1:17~a", "web-2:40~b")
	for i, label := range []string{"web-1:17", "web-2:40"} {
		locks[i].Holders[0].Label = label
		locks[1-i].Waiters[0].ID = label + "~other"
	}
	all := keyspace.Deadlocks(snapshotOf(locks...))
	check.True(t, len(all) == 1 && !all[0].Certain &&
		strings.HasPrefix(all[0].Text(t0), "Possible deadlock between processes: web-1:17 waits for lock:2 of web-2:40,"), "%+v", all)
}

func TestAChainIsFollowedInBothDirections(t *testing.T) {
	locks := []keyspace.Lock{
		contended("chain:1", []string{"svc-c:1"}, []string{"svc-d:1"}),
		contended("chain:2", []string{"svc-d:1"}, []string{"svc-e:1", "svc-f:1"}),
		contended("chain:3", []string{"svc-f:1"}, nil),
		contended("other", []string{"web-1:1"}, []string{"web-2:1"}),
	}
	locks[1].Waiters[1].Since = t0.Add(-time.Minute)
	snap := snapshotOf(append(locks, ring("a", "b")...)...)
	for key, want := range map[string]string{
		"chain:1": "0 chain:1 of svc-c:1 blocks 3, 1 directly, 1 chain:2 of svc-d:1 blocks 2, 2 directly, 3 waiters, 1 directly, longest 1m0s",
		"chain:2": "svc-d:1 > chain:1 > svc-c:1, 0 chain:1 of svc-c:1 blocks 3, 1 directly, 1 chain:2 of svc-d:1 blocks 2, 2 directly, 2 waiters, 2 directly, longest 1m0s",
		"chain:3": "svc-f:1 > chain:2 > svc-d:1 > chain:1 > svc-c:1, 0 chain:1 of svc-c:1 blocks 3, 1 directly, 1 chain:2 of svc-d:1 blocks 2, 2 directly, 2 chain:3 of svc-f:1 blocks 0, 0 directly, 0 waiters, 0 directly, longest 0s", // without waiters of its own
		"other":   "0 other of web-1:1 blocks 1, 1 directly, 1 waiters, 1 directly, longest 2s",
		"lock:1":  "a > lock:2 > b > lock:1 > a, a cycle, 0 lock:1 of a blocks 2, 1 directly, 1 lock:2 of b blocks 1, 1 directly, 2 waiters, 1 directly, longest 2s",
	} {
		i := 0
		for snap.Locks[i].Key != key {
			i++
		}
		c := keyspace.ChainOf(snap, snap.Locks[i])
		var facts []string
		for _, path := range c.Paths {
			text := path[0].Owner
			for _, w := range path {
				text += " > " + w.Lock.Key + " > " + w.For
			}
			if facts = append(facts, text); keyspace.Cycle(path) {
				facts = append(facts, "a cycle")
			}
		}
		for _, b := range c.Tree {
			facts = append(facts, fmt.Sprintf("%d %s of %s blocks %d, %d directly", b.Depth, b.Lock.Key, b.Owner, b.Waiters, b.Direct))
		}
		facts = append(facts, fmt.Sprint(c.Waiters, " waiters"), fmt.Sprint(c.Direct, " directly"), fmt.Sprint("longest ", c.Longest.Duration))
		check.Equal(t, strings.Join(facts, ", "), want, "%s: it is", key)
	}
}

// The tree has any depth, and its branches follow the lock that they wait for.
func TestAWaitForTreeHasAnyDepth(t *testing.T) {
	var locks []keyspace.Lock
	for i := range 40 { // owner i holds lock i and waits for lock i-1; two others wait for each, too
		waiters := []string{fmt.Sprintf("owner-%02d:1", i+1), "web-1:1", "web-2:1"}
		locks = append(locks, contended(fmt.Sprintf("deep:%02d", i), []string{fmt.Sprintf("owner-%02d:1", i)}, waiters))
	}
	locks = append(locks, contended("side", []string{"web-9:1"}, []string{"web-1:1"}))
	locks[20].Waiters[1].ID = "web-9:1"
	snap := snapshotOf(locks...)
	c := keyspace.ChainOf(snap, snap.Locks[39])
	check.Require(t, len(c.Paths) == 1 && len(c.Paths[0]) == 39 && len(c.Tree) == 41 && c.Waiters == 3,
		"%d locks to the root, and a tree of %d: %+v", len(c.Paths[0]), len(c.Tree), c)
	for i, b := range c.Tree[:40] {
		check.Require(t, b.Lock.Key == fmt.Sprintf("deep:%02d", i) && b.Depth == i && b.Direct == 3,
			"branch %d is %s at depth %d", i, b.Lock.Key, b.Depth)
	}
	root, last := c.Tree[0], c.Tree[40]
	check.True(t, root.Waiters == 121 && last.Lock.Key == "side" && last.Depth == 21,
		"the root blocks %d, and the last branch is %+v", root.Waiters, last)
}
