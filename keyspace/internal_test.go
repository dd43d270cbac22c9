package keyspace_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace/internal/cache"
	"locktop/keyspace/internal/sorted"
)

func TestAMapForgetsOnlyEntriesThatAreNotUsed(t *testing.T) {
	var m cache.Map[int, int]
	m.Put(-1, 1)
	m.Put(-2, 2)
	for i := range 3 * cache.Size {
		m.Put(i, i)
		if i%100 == 0 {
			v, known := m.Get(-2)
			check.True(t, known, "a used entry was forgotten")
			m.Put(-2, v)
		}
	}
	_, known := m.Get(-1)
	check.True(t, !known, "an entry that was not used is still stored")
	n := 0
	for i := -2; i < 3*cache.Size; i++ {
		if _, known := m.Get(i); known {
			n++
		}
	}
	check.True(t, n <= 2*cache.Size, "%d entries are stored, want at most %d", n, 2*cache.Size)
}

func TestInsertKeepsTheOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		numbers := func() []int {
			some := make([]int, random.IntN(10))
			for i := range some {
				some[i] = random.IntN(20)
			}
			slices.Sort(some)
			return some
		}
		all, more := numbers(), numbers()
		want := slices.Sorted(slices.Values(slices.Concat(all, more)))
		got := sorted.Insert(all, more, cmp.Compare)
		check.Require(t, slices.Equal(got, want), "%v with %v is %v", all, more, got)
	}
}
