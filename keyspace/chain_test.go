package keyspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		"chain:1": "behind chain:2 of svc-d:1, 3 waiters, longest 1m0s",
		"chain:2": "svc-d:1 > chain:1 > svc-c:1, 2 waiters, longest 1m0s",
		"chain:3": "svc-f:1 > chain:2 > svc-d:1 > chain:1 > svc-c:1, 0 waiters, longest 0s", // without waiters of its own
		"other":   "1 waiters, longest 2s",
		"lock:1":  "a > lock:2 > b > lock:1 > a, a cycle, behind lock:2 of b, 2 waiters, longest 2s",
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
		for _, b := range c.Behind {
			facts = append(facts, "behind "+b.Lock.Key+" of "+b.Owner)
		}
		facts = append(facts, fmt.Sprint(c.Waiters, " waiters"), fmt.Sprint("longest ", c.Longest.Duration))
		if got := strings.Join(facts, ", "); got != want {
			t.Errorf("%s: it is\n%s, want\n%s", key, got, want)
		}
	}
}
