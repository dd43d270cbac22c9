package loadgen_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
)

func TestEveryScenarioIsValidAndHasACaption(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios.All() {
		check.ErrorIs(t, s.Validate(), nil, "%s", s.Name)
		again, found := scenarios.Find(s.Name)
		check.True(t, found && again.Caption == s.Caption, "%s is found as %+v", s.Name, again)
		check.False(t, seen[s.Name], "%s is there twice", s.Name)
		seen[s.Name] = true
		check.True(t, strings.Count(s.Caption, ". ")+strings.Count(s.Caption, ".\"") == 1 && strings.HasSuffix(s.Caption, "."),
			"%s: the caption must be two sentences: %q", s.Name, s.Caption)
		check.True(t, s.Watch != "" && len(s.Expect) != 0 && s.Duration != 0, "%s says not where to look, what to expect or when it ends", s.Name)
	}
}

// What a row asks of a client process is valid for each; our own kinds run the rows that they can.
func TestEveryRowOfTheSuiteIsForAClientProcess(t *testing.T) {
	valid := 0
	for _, s := range scenarios.Suite() {
		check.ErrorIs(t, s.WithClient("x").Validate(), nil, "%s", s.Name)
		check.True(t, s.Caption != "" && s.Duration > 0, "%s has no caption or no end", s.Name)
		if s.Validate() == nil {
			valid++
		}
	}
	check.AtLeast(t, valid, 18, "rows for the kind that they name")
}

// longest is how long a scenario without faults runs in this test. It shows its
// effect from the beginning.
const longest = 3 * time.Second

// Every scenario runs on real servers and must show its effect. Scenarios 7, 8,
// 15, 24, 36, 45, 52, 57, 64, 67, 69 and 109.
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

// five starts five independent servers that the run can stop and start.
func five(t *testing.T) loadgen.Servers {
	t.Helper()
	set := servertest.IndependentForTest(t, 5)
	on := loadgen.Servers{Power: set}
	for _, child := range set.Nodes() {
		on.Nodes = append(on.Nodes, servertest.ClientForTest(t, child.Addr(), nil))
	}
	on.Redis = on.Nodes[0]
	return on
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
