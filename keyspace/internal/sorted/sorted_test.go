package sorted

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"locktop/internal/check"
)

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
		got := Insert(all, more, cmp.Compare)
		check.Require(t, slices.Equal(got, want), "%v with %v is %v", all, more, got)
	}
}
