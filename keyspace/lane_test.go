package keyspace

import (
	"testing"
	"time"
)

func TestPagesFitWhatTheyTakeTheServer(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		count int64
		took  time.Duration
		want  int64
	}{
		{250, 400 * us, 250},  // just right
		{250, 0, 500},         // a clock that stands still
		{250, 10 * us, 500},   // no more than double at once
		{250, 300 * us, 333},  // a little more
		{250, 800 * us, 125},  // half
		{250, 9000 * us, 125}, // no less than half at once
		{800, 100 * us, 1000}, // never more
		{1000, 10 * us, 1000},
		{60, 9000 * us, 50}, // never less
	} {
		if got := nextCount(c.count, c.took); got != c.want {
			t.Errorf("after %d keys in %v the next page has %d, want %d", c.count, c.took, got, c.want)
		}
	}
}

// A writer that adds keys as fast as we walk would keep us walking for ever.
func TestALaneWithoutEndIsGivenUp(t *testing.T) {
	l := &lane{keys: 100_000, count: 1000}
	pages, visited := 0, int64(0)
	for ; !l.done() && pages < 1000; pages++ {
		visited += l.advance(42)
	}
	if !l.endless || pages != 411 {
		t.Errorf("after %d pages: given up=%v", pages, l.endless)
	}
	if visited != l.keys {
		t.Errorf("it is said to have visited %d of %d keys", visited, l.keys)
	}
	if p := (pass{lanes: []*lane{l}}); !p.done() || p.complete() {
		t.Error("the pass should be done, and incomplete")
	}
}

func TestALaneThatEndsEarlyHasVisitedEverything(t *testing.T) {
	l := &lane{keys: 1000, count: 250}
	if got := l.advance(7) + l.advance(0); got != 1000 || !l.done() || l.endless {
		t.Errorf("visited %d, done=%v", got, l.done())
	}
}
