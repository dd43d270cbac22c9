package contest

import (
	"testing"
	"time"

	"locktop/internal/check"
)

func TestVerdictIsShortAsSoonAsOneGoalIsMissed(t *testing.T) {
	v := Verdict{Name: "B1 clients=64"}
	v.atLeast("redsync", 4.31, 4)
	v.atMost("cpu", 0.2, 0.3)
	got, want := v.String(), "B1 clients=64 redsync=4.3 cpu=0.20 ok"
	check.True(t, got == want, "the verdict is %q, want %q", got, want)
	v.atLeast("rueidislock", 1.9, 2)
	if got, want := v.String(), "B1 clients=64 redsync=4.3 cpu=0.20 rueidislock=1.90 short"; got != want {
		t.Errorf("the verdict is %q, want %q", got, want)
	}
}

func TestRatioIsTakenWithinEachRound(t *testing.T) {
	round := func(cycles int) Sample { return Sample{Wall: time.Second, Cycles: cycles} }
	ours := Series{Rounds: []Sample{round(400), round(40), round(4000)}}
	theirs := Series{Rounds: []Sample{round(100), round(20), round(500)}}
	check.Equal(t, ours.times(theirs, Sample.Rate), 4, "how many times as fast ours is")
	check.Equal(t, ours.median(Sample.Rate), 400, "the median")
}

func TestQuantileOfFewDurations(t *testing.T) {
	waits := []time.Duration{time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond}
	for q, want := range map[float64]float64{0: 1, 0.5: 2, 0.99: 10, 1: 10} {
		check.Equal(t, quantile(waits, q), want, "quantile %v in ms", q)
	}
	check.Equal(t, quantile(nil, 0.5), 0, "the quantile of nothing")
}

// TestEveryContenderLocksAndUnlocks keeps the benchmarks working. It runs a
// short window for each contender and checks only the counts.
func TestEveryContenderLocksAndUnlocks(t *testing.T) {
	bed := testbed(t)
	for _, c := range append(Contenders(), rwContenders()[:2]...) {
		t.Run(c.Name, func(t *testing.T) {
			s := Setting{Clients: 3, Lease: longLease(), Work: Work{Cycles: 30}}
			s.Hot = c.Runs&HotKey != 0
			s.ReadEvery = 3
			sample, err := bed.runWindow(t.Context(), c, s)
			check.NoError(t, err)
			check.True(t, sample.Cycles == 30 && sample.Commands >= 60,
				"%d cycles with %d commands, want 30 with at least 60", sample.Cycles, sample.Commands)
			if n, err := bed.stored(t.Context()); err != nil || n != 0 {
				t.Errorf("%d keys are left, %v", n, err)
			}
		})
	}
}
