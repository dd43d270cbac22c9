package inspect

import (
	"testing"
	"time"

	"locktop/internal/check"
)

func TestPagesFitWhatTheyTakeTheServer(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		count int64
		took  time.Duration
		want  int64
	}{
		{250, 500 * us, 250},  // unchanged
		{250, 0, 500},         // the clock does not advance
		{250, 10 * us, 500},   // at most doubled at once
		{250, 400 * us, 312},  // a little more
		{250, 1000 * us, 125}, // half
		{250, 9000 * us, 125}, // at most halved at once
		{800, 100 * us, 1000}, // at most 1000
		{1000, 10 * us, 1000},
		{60, 9000 * us, 50}, // at least 50
	} {
		check.Equal(t, nextCount(c.count, c.took), c.want, "after %d keys in %v the next page has", c.count, c.took)
	}
}

// A writer that adds keys as fast as the scan reads them would keep a pass from ending.
func TestAPassWithoutEndIsGivenUp(t *testing.T) {
	w := &cursor{keys: 100_000, pos: 42}
	pages, visited := 0, int64(0)
	for ; !w.done() && pages < 1000; pages++ {
		visited += w.advance(1000)
	}
	check.True(t, w.gaveUp && pages == 411, "after %d pages: given up=%v", pages, w.gaveUp)
	check.True(t, visited == w.keys, "it is said to have visited %d of %d keys", visited, w.keys)
	p := (scanPass{cursors: cursors{all: []cursor{*w}}, verified: true})
	check.True(t, p.done() && !p.complete(), "the pass should be done, and incomplete")
}

func TestACursorThatEndsEarlyHasVisitedEverything(t *testing.T) {
	w := &cursor{keys: 1000, pos: 7}
	visited := w.advance(250)
	w.pos = 0
	got := visited + w.advance(250)
	check.True(t, got == 1000 && w.done() && !w.gaveUp, "visited %d, done=%v", got, w.done())
}
