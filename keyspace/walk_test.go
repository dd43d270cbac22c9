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
		{250, 500 * us, 250},  // just right
		{250, 0, 500},         // a clock that stands still
		{250, 10 * us, 500},   // no more than double at once
		{250, 400 * us, 312},  // a little more
		{250, 1000 * us, 125}, // half
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
func TestAWalkWithoutEndIsGivenUp(t *testing.T) {
	w := &walk{keys: 100_000, cursor: 42}
	pages, visited := 0, int64(0)
	for ; !w.done() && pages < 1000; pages++ {
		visited += w.advance(1000)
	}
	if !w.endless || pages != 411 {
		t.Errorf("after %d pages: given up=%v", pages, w.endless)
	}
	if visited != w.keys {
		t.Errorf("it is said to have visited %d of %d keys", visited, w.keys)
	}
	if p := (pass{turn: turn{walks: []walk{*w}}}); !p.done() || p.complete() {
		t.Error("the pass should be done, and incomplete")
	}
}

func TestAWalkThatEndsEarlyHasVisitedEverything(t *testing.T) {
	w := &walk{keys: 1000, cursor: 7}
	visited := w.advance(250)
	w.cursor = 0
	if got := visited + w.advance(250); got != 1000 || !w.done() || w.endless {
		t.Errorf("visited %d, done=%v", got, w.done())
	}
}
