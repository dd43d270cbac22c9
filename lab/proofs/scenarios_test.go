//go:build unix

package proofs

import (
	"context"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
)

// longest is how long a scenario without faults runs in this test. It shows its
// effect from the beginning.
const longest = 3 * time.Second

// Every scenario runs on real servers and must show its effect.
func TestEveryScenarioShowsItsEffect(t *testing.T) {
	testtier.Long(t, "it runs every scenario")
	single := servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)
	var herd []*float64 // commands per hold, by the way of waiting
	t.Run("scenario", func(t *testing.T) {
		for _, s := range scenarios.All() {
			if len(s.Faults) == 0 {
				s.Duration = min(s.Duration, longest+s.Patience)
			}
			for _, side := range s.Sides() {
				cost := new(float64)
				if s.Name == "herd" {
					herd = append(herd, cost)
				}
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					on := loadgen.Servers{Redis: single}
					if side.Lock.Kind.Quorum() {
						on = five(t)
					}
					*cost = show(t, on, side).CommandsPerHold()
				})
			}
		}
	})
	poll, notify, fair := *herd[0], *herd[1], *herd[2]
	check.True(t, poll > 3*notify && poll > 3*fair, "commands a hold: %.1f by asking, %.1f by listening, %.1f in a queue", poll, notify, fair)
}

// show runs a scenario to its end, on a slow machine up to three times, and checks that it showed
// its effect. It returns the metrics of its last run, and is safe in each.
func show(t *testing.T, on loadgen.Servers, s loadgen.Scenario) (m loadgen.Metrics) {
	var missed []loadgen.Threshold
	for try := 0; try == 0 || try < 3 && len(missed) > 0; try++ {
		run := check.Must(loadgen.New(on, s))(t)
		check.NoError(t, run.Start())
		<-run.Done()
		check.ErrorIs(t, run.Close(), nil, "%s", s.Name)
		m = run.Metrics()
		missed = loadgen.Missed(s.Expect, m)
		v := m.Verdict(s)
		check.True(t, v.Safe, "%s (%s): %s", s.Name, s.Lock, v.Text())
		for _, rdb := range append([]loadgen.RedisClient{on.Redis}, on.Nodes...) {
			keys, err := rdb.Keys(context.Background(), run.Scenario().Keys.Prefix+"*").Result()
			check.True(t, err == nil && len(keys) == 0, "%s (%s): keys left behind: %q %v", s.Name, s.Lock, keys, err)
		}
	}
	for _, missed := range missed {
		t.Errorf("%s (%s): expected %s, got %s", s.Name, s.Lock, missed, missed.Measured(m))
	}
	if t.Failed() {
		m.Seconds, m.Clients.States = nil, nil
		t.Logf("%s: %+v", s.Name, m)
	}
	return m
}
