package contest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"locktop/internal/humanize"
)

// longLease returns a lease that is longer than every window.
func longLease() Lease { return Lease{TTL: 30 * time.Second, Renew: 10 * time.Second} }

// cycleGoals returns the goals for many clients on one connection: locktop's
// rate as a multiple of each peer's.
func cycleGoals(clients int) map[string]float64 {
	if clients >= 512 {
		return map[string]float64{"redsync": 7, "redislock": 5, "rueidislock": 2.5}
	}
	return map[string]float64{"redsync": 4, "redislock": 3, "rueidislock": 2}
}

const (
	latencyGoal = 1.1     // times raw's, with one client
	cpuGoal     = 1 / 3.0 // times redsync's
)

// uncontended measures cycles without contention.
func uncontended(ctx context.Context, t *Testbed, size Size) (Result, error) {
	rounds, work := 5, Work{Warm: 200 * time.Millisecond, Length: time.Second}
	if size == Quick {
		rounds, work = 5, Work{Warm: 70 * time.Millisecond, Length: 280 * time.Millisecond}
	}
	result := Result{
		Title: "B1: a lock without contention",
		About: "Every client locks and unlocks a key of its own, over and over. All clients of a contender are goroutines of one process that share its connections. Costs are CPU time of a cycle; the client's include everything around the lock.",
	}
	for _, clients := range []int{1, 64, 512} {
		s := Setting{Clients: clients, Lease: longLease(), Work: work}
		contenders := in(Cycles)
		if size == Quick {
			contenders = slices.DeleteFunc(contenders, func(c Contender) bool { return c.Name != mutexName && !hasGoal(c.Name, clients) })
		}
		all, err := t.runRounds(ctx, contenders, rounds, s)
		if err != nil {
			return result, fmt.Errorf("B1 with %d clients: %w", clients, err)
		}
		result.Tables = append(result.Tables, cycleTable(clients, all))
		result.Verdicts = append(result.Verdicts, cycleVerdicts(clients, all)...)
	}
	return result, nil
}

// hasGoal reports whether there is a goal for the comparison with a contender.
func hasGoal(name string, clients int) bool {
	if clients == 1 {
		return name == "raw"
	}
	return cycleGoals(clients)[name] > 0
}

func cycleTable(clients int, all []Series) Table {
	return tableOf(humanize.Plural(clients, "client"), all, []column{
		{"cycles/s", exactly("%.0f", Sample.Rate)}, {"locktop is × as fast", func(s Series) string { return short(all[0].times(s, Sample.Rate)) }},
		{"client µs", shortly(Sample.ClientCost)}, {"server µs", shortly(Sample.ServerCost)},
		{"p50 ms", exactly("%.3f", tookQuantile(0.5))}, {"p99 ms", exactly("%.3f", tookQuantile(0.99))},
	})
}

func cycleVerdicts(clients int, all []Series) []Verdict {
	locktop := all[0]
	name := fmt.Sprintf("B1 clients=%d", clients)
	if clients == 1 {
		v := Verdict{Name: name + " latency"}
		v.atMost("raw", locktop.times(seriesOf(all, "raw"), tookQuantile(0.5)), latencyGoal)
		return []Verdict{v}
	}
	speed := Verdict{Name: name}
	for _, s := range all[1:] {
		if goal, ok := cycleGoals(clients)[s.Name]; ok {
			speed.atLeast(s.Name, locktop.times(s, Sample.Rate), goal)
		}
	}
	cpu, redsync := Verdict{Name: name + " cpu of redsync's"}, seriesOf(all, "redsync")
	cpu.atMost("client", locktop.times(redsync, Sample.ClientCost), cpuGoal)
	cpu.atMost("server", locktop.times(redsync, Sample.ServerCost), cpuGoal)
	return []Verdict{speed, cpu}
}
