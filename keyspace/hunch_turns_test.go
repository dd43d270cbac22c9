package keyspace

import (
	"strconv"
	"testing"
	"time"
)

// Of very many keys that are just possible a bounded number is watched at a
// time, and each gets its turn.
func TestHunchesTakeTurns(t *testing.T) {
	const keys, page = 3_000, 100
	now := time.Unix(1_700_000_000, 0)
	h := newHunches(Likely)
	watched := make(map[string]bool)
	for range 2 * keys / hunchesMost {
		for visited := 0; visited < keys; visited += page {
			var found []found
			for i := range page {
				if h.atLeast(int64(visited)) == Possible {
					found = append(found, possible(visited+i))
				}
			}
			if locks := h.sort(found, int64(visited), now); len(locks) != 0 {
				t.Fatalf("%d hunches are taken for locks", len(locks))
			}
		}
		h.ended()
		if len(h.known) > hunchesMost {
			t.Fatalf("%d are watched at a time", len(h.known))
		}
		for key := range h.known {
			watched[key] = true
		}
		now = now.Add(hunchFor + time.Second)
		h.look(nil, now)
	}
	if len(watched) != keys {
		t.Errorf("%d of %d were ever watched", len(watched), keys)
	}
}

// possible is a key that is just possibly a lock.
func possible(i int) found {
	token := "token:" + strconv.Itoa(i)
	return found{typ: "string", lock: Lock{Key: strconv.Itoa(i), Confidence: Possible, Holders: []Holder{{ID: token, Count: 1}}}}
}
