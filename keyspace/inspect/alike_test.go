package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

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
	check.True(t, len(sampled) >= keys && most <= maxObserved, "in %d passes, %d of %d keys were read, at most %d in a pass", passes, len(sampled), keys, most)
	a.sample = false
	check.True(t, a.skips("job:*", a.passes%alikeSample), "it is sampled though no more keys can be observed")
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
	var none alike
	none.add("job:*", 1000)
	none.use("job:1")
	none.endPass()
	check.True(t, !none.isCrowded("job:*") && none.takeFresh() == nil && len(none.crowded) == 0, "nothing is counted, and something is crowded")
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
				parts[node].Locks = append(parts[node].Locks, &keyspace.Lock{Key: fmt.Sprintf("job:%d", i), Confidence: keyspace.Possible, Holders: []keyspace.Holder{{ID: token, Depth: 1}}})
			}
			parts[node].Addr, parts[node].Complete = fmt.Sprint("127.0.0.1:", node), true
		}
		return keyspace.Merge(parts, keyspace.MergeOptions{Redlock: true, MinConfidence: keyspace.Possible})
	}
	none := merged(0)
	check.True(t, len(none.Locks) == 0 && len(none.Problems) == 1, "of 500 keys without a majority, %d are shown: %q", len(none.Locks), none.Problems)
	check.Equal(t, len(merged(3).Locks), 500, "locks that are shown of 500 keys, three with a majority")
}

// If there are very many possible locks, a limited number is observed at a time, and
// each is observed at some time.
func TestPossibleLocksTakeTurns(t *testing.T) {
	const keys, page = 3_000, 100
	now := time.Unix(1_700_000_000, 0)
	h := newPossibleLocks(keyspace.Likely, false)
	watched := make(map[string]bool)
	for range 2 * keys / maxObserved {
		for visited := 0; visited < keys; visited += page {
			var found []candidate
			for i := range page {
				if h.atLeast(int64(visited), 0) == keyspace.Possible {
					found = append(found, possible(visited+i, now.Add(time.Minute)))
				}
			}
			check.Require(t, !slices.ContainsFunc(found, func(c candidate) bool { return h.shows(c, int64(visited), now) }), "one is taken for a lock")
		}
		h.endPass()
		hidden, atLeast := h.notShown()
		check.Require(t, hidden >= maxObserved && hidden <= keys && atLeast, "%d are not shown, at least: %v", hidden, atLeast)
		check.Require(t, len(h.observed) <= maxObserved, "%d are watched at a time", len(h.observed))
		for key := range h.observed {
			watched[key] = true
		}
		now = now.Add(observeFor + time.Second)
		h.update(nil, now)
	}
	check.True(t, len(watched) == keys, "%d of %d were ever watched", len(watched), keys)
}

// possible returns a key that is only possibly a lock.
func possible(i int, expires time.Time) candidate {
	token := "token:" + strconv.Itoa(i)
	return candidate{format: new(keyspace.Format), lock: &keyspace.Lock{Key: strconv.Itoa(i), Confidence: keyspace.Possible, Expires: expires, Holders: []keyspace.Holder{{ID: token, Depth: 1}}}}
}

// Keys that cannot give a second sign do not displace keys that can, and no pass reads all of them.
func TestKeysThatCannotBeConfirmedAreNotObserved(t *testing.T) {
	const keys, page = 10_000, 100
	now := time.Unix(1_700_000_000, 0)
	h := newPossibleLocks(keyspace.Likely, false)
	for range 2 * keys / maxPossibleReads {
		read := 0
		for visited := 0; visited < keys; visited += page {
			var found []candidate
			for i := range page {
				if h.atLeast(int64(visited), 0) != keyspace.Possible {
					continue
				}
				expires := now.Add(time.Hour)
				if visited+i == keys-1 {
					expires = now.Add(time.Minute)
				}
				found = append(found, possible(visited+i, expires))
				read++
			}
			check.Require(t, !slices.ContainsFunc(found, func(c candidate) bool { return h.shows(c, int64(visited), now) }), "one is taken for a lock")
		}
		h.endPass()
		check.Require(t, read <= maxPossibleReads+page, "a walk read %d possible keys", read)
	}
	check.True(t, len(h.observed) == 1, "%d keys are watched, want the last one", len(h.observed))
}

// A pass reads a limited number of keys whose first piece does not rule them out, though none
// is observed. The next pass resumes where it stopped, so that each is read in some pass.
func TestKeysThatAreReadInVainTakeTurns(t *testing.T) {
	const keys, page = 3*maxWeakReads + 500, 100
	h := newPossibleLocks(keyspace.Likely, false)
	read := make(map[int]bool)
	for range 4 {
		weak := 0
		for visited := 0; visited < keys; visited += page {
			if h.atLeast(int64(visited), weak) != keyspace.Possible {
				continue
			}
			for i := range page {
				read[visited+i] = true
			}
			weak += page
		}
		check.Require(t, weak <= maxWeakReads+page, "a pass read %d keys", weak)
		h.endPass()
	}
	check.True(t, len(read) >= keys, "%d of %d keys were ever read", len(read), keys)
	check.True(t, h.atLeast(0, 0) == keyspace.Possible, "after all keys, it does not begin again")
}
