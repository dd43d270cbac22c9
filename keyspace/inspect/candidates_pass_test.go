package inspect

import (
	"strconv"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// If there are very many candidates, a limited number is watched at a time, and
// each is watched at some time.
func TestCandidatesTakeTurns(t *testing.T) {
	const keys, page = 3_000, 100
	now := time.Unix(1_700_000_000, 0)
	h := newCandidates(keyspace.Likely, false)
	watched := make(map[string]bool)
	for range 2 * keys / maxCandidates {
		for visited := 0; visited < keys; visited += page {
			var found []detection
			for i := range page {
				if h.atLeast(int64(visited), 0) == keyspace.Possible {
					found = append(found, possible(visited+i, now.Add(time.Minute)))
				}
			}
			locks := h.split(found, int64(visited), now)
			check.Require(t, len(locks) == 0, "%d candidates are taken for locks", len(locks))
		}
		h.endPass()
		check.Require(t, len(h.known) <= maxCandidates, "%d are watched at a time", len(h.known))
		for key := range h.known {
			watched[key] = true
		}
		now = now.Add(candidateTTL + time.Second)
		h.update(nil, now)
	}
	check.True(t, len(watched) == keys, "%d of %d were ever watched", len(watched), keys)
}

// possible returns a key that is only possibly a lock.
func possible(i int, expires time.Time) detection {
	token := "token:" + strconv.Itoa(i)
	return detection{readInfo: readInfo{typ: "string"}, lock: keyspace.Lock{Key: strconv.Itoa(i), Confidence: keyspace.Possible, Expires: expires, Holders: []keyspace.Holder{{ID: token, Count: 1}}}}
}

// Keys that cannot give a second sign do not displace keys that can, and no pass reads all of them.
func TestKeysThatCannotBeConfirmedAreNotCandidates(t *testing.T) {
	const keys, page = 10_000, 100
	now := time.Unix(1_700_000_000, 0)
	h := newCandidates(keyspace.Likely, false)
	for range 2 * keys / maxCandidateReads {
		read := 0
		for visited := 0; visited < keys; visited += page {
			var found []detection
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
			h.split(found, int64(visited), now)
		}
		h.endPass()
		check.Require(t, read <= maxCandidateReads+page, "a walk read %d possible keys", read)
	}
	check.True(t, len(h.known) == 1, "%d keys are watched, want the last one", len(h.known))
}

// A pass reads a limited number of keys whose first piece does not rule them out, though none
// is a candidate. The next pass resumes where it stopped, so that each is read in some pass.
func TestKeysThatAreReadInVainTakeTurns(t *testing.T) {
	const keys, page = 3*maxWeakReads + 500, 100
	h := newCandidates(keyspace.Likely, false)
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
