package loadgen

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentilesAreWithinOnePercentOfTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	h := newHistogram()
	all := make([]time.Duration, 10_000)
	for i := range all {
		all[i] = 5*time.Microsecond + Exp(30*time.Millisecond).draw(r)
		h.add(all[i])
	}
	slices.Sort(all)
	got := h.latency()
	for _, p := range []struct {
		name      string
		got, want time.Duration
	}{
		{"p50", got.P50, all[4999]},
		{"p99", got.P99, all[9899]},
	} {
		if p.got < p.want-p.want/100 || p.got > p.want+p.want/100 {
			t.Errorf("%s = %s, want %s", p.name, p.got, p.want)
		}
	}
	if got.Max != all[9999] {
		t.Errorf("max = %s, want exactly %s", got.Max, all[9999])
	}
}

func TestNoPercentileIsAboveTheMaximum(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 700, 12345, time.Second, 3 * time.Hour} {
		h := newHistogram()
		h.add(d)
		got := h.latency()
		if got.P50 > got.Max || got.P99 > got.Max || got.Max != d {
			t.Errorf("one value, %s: got %+v", d, got)
		}
	}
}

func TestDurationsOutOfRangeAreCounted(t *testing.T) {
	h := newHistogram()
	h.add(-time.Second)
	h.add(3 * time.Hour)
	if got := h.hdr.TotalCount(); got != 2 {
		t.Errorf("counted %d of 2", got)
	}
}

func TestResetForgetsEverything(t *testing.T) {
	h := newHistogram()
	h.add(time.Second)
	h.reset()
	if got := h.latency(); got != (Latency{}) {
		t.Errorf("got %+v", got)
	}
}
