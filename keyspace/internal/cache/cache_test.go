package cache

import (
	"testing"

	"locktop/internal/check"
)

func TestAMapForgetsOnlyEntriesThatAreNotUsed(t *testing.T) {
	var m Map[int, int]
	m.Put(-1, 1)
	m.Put(-2, 2)
	for i := range 3 * Size {
		m.Put(i, i)
		if i%100 == 0 {
			m.GetOrAdd(-2, func() int { t.Error("a used entry was forgotten"); return 2 })
		}
	}
	_, known := m.Get(-1)
	check.True(t, !known, "an entry that was not used is still stored")
	n := len(m.young) + len(m.old)
	check.True(t, n <= 2*Size, "%d entries are stored, want at most %d", n, 2*Size)
}
