package keyspace_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

func TestAReviewOfChangesIsThatOfAllLocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lock := func(now time.Time, i int) *keyspace.Lock {
		l := &keyspace.Lock{Node: fmt.Sprint("node-", i%2), Key: fmt.Sprint("lock:", i), Kind: keyspace.Mutex, Format: "locktop-fair"}
		h := keyspace.Holder{ID: fmt.Sprint("owner-", random.IntN(5)), Depth: 1, Since: now.Add(-time.Duration(random.IntN(100)) * time.Minute / 10)}
		if l.Holders = []keyspace.Holder{h}; random.IntN(4) > 0 {
			l.Expires = now.Add(time.Hour)
		}
		for range max(0, random.IntN(6)-3) {
			w := fmt.Sprint("owner-", random.IntN(5))
			l.Waiters = append(l.Waiters, keyspace.Waiter{ID: w, Since: now.Add(-time.Duration(random.IntN(60)) * time.Second)})
		}
		if random.IntN(10) == 0 {
			l.AskedAt = now
		}
		return l
	}
	sorted := func(locks map[int]*keyspace.Lock) (all []*keyspace.Lock) {
		for _, l := range locks {
			all = append(all, l)
		}
		slices.SortFunc(all, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
		return all
	}
	now, locks := at(0), make(map[int]*keyspace.Lock)
	review := new(keyspace.Review).Next(keyspace.Snapshot{At: now}, true)
	deadlocks, changed, steps := 0, 0, testtier.Size(600, 3000, 3000)
	for step := range steps {
		for range random.IntN(3) {
			if i := random.IntN(30); random.IntN(3) == 0 {
				delete(locks, i)
			} else {
				locks[i] = lock(now, i)
			}
		}
		all := step%10 == 0
		if all {
			now = now.Add(time.Minute)
		}
		s := keyspace.Snapshot{At: now, Locks: sorted(locks)}
		was := review.Order(review.Findings)
		review = review.Next(s, all)
		want := new(keyspace.Review).Next(s, true)
		check.Require(t, reflect.DeepEqual(review.Findings, keyspace.Findings(s)) && reflect.DeepEqual(review.Deadlocks, keyspace.Deadlocks(s)),
			"step %d: it finds\n%+v, want\n%+v", step, review.Findings, want.Findings)
		check.Require(t, review.Waiters == want.Waiters && review.AtLeast == want.AtLeast && (!all || review.CheckedAt.Equal(now)),
			"step %d: %d waiters, at least: %v, checked at %v; want %+v", step, review.Waiters, review.AtLeast, review.CheckedAt, want)
		order := review.Order(review.Findings)
		check.Require(t, slices.Equal(order, want.Order(want.Findings)), "step %d: another order", step)
		some := review.Findings[:len(review.Findings)/2]
		check.Require(t, slices.Equal(review.Order(some), want.Order(some)), "step %d: another order without some of the findings", step)
		deadlocks += len(review.Deadlocks)
		if !slices.Equal(order, was) {
			changed++
		}
	}
	check.True(t, deadlocks >= steps/30 && changed >= steps/3, "only %d deadlocks and %d other orders", deadlocks, changed)
}
