package inspect

import (
	"fmt"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
)

// A class is crowded from one key too many on until it is much smaller, unless one of its keys
// behaves as a lock.
func TestAClassIsCrowdedByItsNumberOfKeys(t *testing.T) {
	a := newAlike()
	pass := func(keys int) {
		a.endPass()
		a.add("job:*", keys)
	}
	for _, step := range []struct {
		keys    int
		crowded bool
	}{{keyspace.MaxAlike, false}, {keyspace.MaxAlike + 1, true}, {keyspace.MaxAlike, true}, {keyspace.MaxAlike / 2, true}} {
		pass(step.keys)
		check.Equal(t, a.isCrowded("job:*"), step.crowded, "with %d keys it is crowded", step.keys)
	}
	a.endPass()
	check.False(t, a.isCrowded("job:*"), "with few keys in a pass, it is still crowded")
	pass(5000)
	a.use("job:7")
	check.False(t, a.isCrowded("job:*") || len(a.takeFresh()) > 0, "a class of which a key is a lock is crowded")
	pass(5000)
	check.False(t, a.isCrowded("job:*") || a.isCrowded("mail:*"), "a class of which a key is a lock is crowded in the next pass")
}

// Of a crowded class a few keys are read in each pass, and each in some pass.
func TestACrowdedClassIsSampled(t *testing.T) {
	const keys = 3_000
	a := newAlike()
	a.add("job:*", keys)
	a.sample = true
	sampled := make(map[int]bool)
	passes, most := 0, 0
	for ; len(sampled) < keys && passes < 10_000; passes++ {
		read := 0
		for i := range keys {
			if !a.skips("job:*", i) {
				sampled[i] = true
				read++
			}
		}
		most = max(most, read)
		a.add("job:*", keys)
		a.endPass()
	}
	check.True(t, len(sampled) >= keys && most <= maxCandidates,
		"in %d passes, %d of %d keys were read, at most %d in a pass", passes, len(sampled), keys, most)
	a.sample = false
	check.True(t, a.skips("job:*", a.passes%alikeSample), "it is sampled though no more candidates can be watched")
}

func TestTheNumberOfClassesIsBounded(t *testing.T) {
	a := newAlike()
	for i := range 2 * maxClasses {
		key := word(i)
		a.add(key, keyspace.MaxAlike+1)
		a.use(key + "x")
	}
	check.True(t, len(a.counts) <= maxClasses && len(a.crowded) <= maxClasses && len(a.used) <= maxClasses,
		"%d classes are counted, %d crowded, %d used", len(a.counts), len(a.crowded), len(a.used))
	var none *alike
	none.add("job:*", 1000)
	none.use("job:1")
	none.endPass()
	check.True(t, !none.isCrowded("job:*") && none.takeFresh() == nil && none.problems() == nil,
		"nothing is counted, and something is crowded")
}

// A Redlock's possible locks are dropped by class after the votes, not before.
func TestManyPossibleLocksOfARedlockAreNotShown(t *testing.T) {
	merged := func(confirmed int) keyspace.Snapshot {
		parts := make([]keyspace.Part, 3)
		for node := range parts {
			for i := range 500 {
				token := fmt.Sprintf("token-of-node-%d-%06d", node, i)
				if i < confirmed {
					token = fmt.Sprintf("token-of-all-nodes-%06d", i)
				}
				parts[node].Locks = append(parts[node].Locks, &keyspace.Lock{Key: fmt.Sprintf("job:%d", i), Confidence: keyspace.Possible, Holders: []keyspace.Holder{{ID: token, Count: 1}}})
			}
			parts[node].Complete = true
		}
		return keyspace.Merge(parts, keyspace.MergeOptions{Redlock: true, MinConfidence: keyspace.Possible})
	}
	none := merged(0)
	check.True(t, len(none.Locks) == 0 && len(none.Problems) == 1,
		"of 500 keys without a majority, %d are shown: %q", len(none.Locks), none.Problems)
	check.Equal(t, len(merged(3).Locks), 500, "locks that are shown of 500 keys, three with a majority")
}
