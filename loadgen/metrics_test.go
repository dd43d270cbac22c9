package loadgen

import (
	"testing"
	"time"

	"locktop/internal/check"
)

func TestNoPercentileIsAboveTheMaximum(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 700, 12345, time.Second, 3 * time.Hour} {
		h := newHistogram()
		h.add(d)
		got := h.latency()
		check.True(t, got.P50 <= got.Max && got.P99 <= got.Max && got.Max == d, "one value, %s: got %+v", d, got)
	}
}

func TestDurationsOutOfRangeAreCounted(t *testing.T) {
	h := newHistogram()
	h.add(-time.Second)
	h.add(3 * time.Hour)
	check.Equal(t, h.hdr.TotalCount(), 2, "counted")
}

func TestResetForgetsEverything(t *testing.T) {
	h := newHistogram()
	h.add(time.Second)
	h.reset()
	check.Equal(t, h.latency(), Latency{})
}

func TestEverySecondHasItsOwnFigures(t *testing.T) {
	tl := newTimeline()
	tl.add(100*time.Millisecond, 40*time.Millisecond)
	tl.add(999*time.Millisecond, 60*time.Millisecond)
	tl.add(1*time.Second, time.Millisecond)
	tl.add(4500*time.Millisecond, 2*time.Millisecond)
	got := tl.seconds(4500 * time.Millisecond)
	check.Require(t, len(got) == 5, "%d seconds, want 5: %+v", len(got), got)
	for i, want := range []int64{2, 1, 0, 0, 1} {
		check.Equal(t, got[i].Acquired, want, "second %d: acquired", i)
	}
	check.True(t, got[0].Wait.Max == 60*time.Millisecond && got[1].Wait.Max == time.Millisecond && got[2].Wait == (Latency{}),
		"waits are in the wrong seconds: %+v", got)
}

func TestALateAcquireCountsInTheCurrentSecond(t *testing.T) {
	tl := newTimeline()
	tl.advance(3 * time.Second)
	tl.add(2999*time.Millisecond, time.Millisecond)
	got := tl.seconds(3 * time.Second)
	check.True(t, len(got) == 4 && got[3].Acquired == 1 && got[2].Acquired == 0, "got %+v", got)
}

func TestHistoryKeepsTheNewestSeconds(t *testing.T) {
	tl := newTimeline()
	for i := range 1000 {
		for range i {
			tl.add(time.Duration(i)*time.Second, 0)
		}
	}
	got := tl.seconds(999 * time.Second)
	check.Require(t, len(got) == HistorySeconds, "%d seconds, want %d", len(got), HistorySeconds)
	for i, s := range got {
		want := int64(1000 - HistorySeconds + i)
		check.Require(t, s.Acquired == want, "second %d from the end: %d acquired, want %d", HistorySeconds-i, s.Acquired, want)
	}
}

func TestALongGapIsEmptySeconds(t *testing.T) {
	for _, gap := range []int{1, 2, HistorySeconds - 1, HistorySeconds, HistorySeconds + 1, 100_000} {
		tl := newTimeline()
		tl.add(0, time.Second)
		got := tl.seconds(time.Duration(gap) * time.Second)
		check.Equal(t, len(got), min(gap+1, HistorySeconds), "gap of %d: seconds", gap)
		var sum int64
		for _, s := range got {
			sum += s.Acquired
		}
		check.Equal(t, gap < HistorySeconds, sum == 1, "gap of %d: %d acquisitions in the history", gap, sum)
	}
}

func TestSecondsAreACopy(t *testing.T) {
	tl := newTimeline()
	tl.advance(2 * time.Second)
	got := tl.seconds(2 * time.Second)
	tl.add(2*time.Second, 0)
	tl.advance(200 * time.Second)
	for i, s := range got {
		check.Equal(t, s.Acquired, 0, "second %d changed afterwards", i)
	}
}
