package keyspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

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
