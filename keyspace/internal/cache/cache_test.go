package cache

import "testing"

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
	if _, known := m.Get(-1); known {
		t.Error("an entry that was not used is still stored")
	}
	if n := len(m.young) + len(m.old); n > 2*Size {
		t.Errorf("%d entries are stored, want at most %d", n, 2*Size)
	}
}
