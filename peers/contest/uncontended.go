package contest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// longLease returns a lease that is longer than every window.
func longLease() Lease { return Lease{TTL: 30 * time.Second, Renew: 10 * time.Second} }

// cycleGoals returns the goals for many clients on one connection: locktop's
// rate as a multiple of each peer's.
func cycleGoals() map[string]float64 {
	return map[string]float64{"redsync": 4, "redislock": 4, "rueidislock": 2}
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
			contenders = named(contenders, cycleRivals(clients)...)
		}
		all, err := t.runRounds(ctx, contenders, rounds, func(ctx context.Context, c Contender) (Sample, error) {
			return t.window(ctx, c, s)
		})
		if err != nil {
			return result, fmt.Errorf("B1 with %d clients: %w", clients, err)
		}
		result.Tables = append(result.Tables, cycleTable(clients, all))
		result.Verdicts = append(result.Verdicts, cycleVerdicts(clients, all)...)
	}
	return result, nil
}

// cycleRivals returns the contenders for which there are goals.
func cycleRivals(clients int) []string {
	if clients == 1 {
		return []string{"locktop", "raw"}
	}
	return append(slices.Collect(maps.Keys(cycleGoals())), "locktop")
}

func cycleTable(clients int, all []Series) Table {
	t := Table{
		Title:   plural(clients, "client"),
		Columns: []string{"cycles/s", "locktop is × as fast", "client µs", "server µs", "p50 ms", "p99 ms"},
	}
	for _, s := range all {
		t.Rows = append(t.Rows, []string{
			s.Name,
			fmt.Sprintf("%.0f", s.median(Sample.Rate)), short(all[0].times(s, Sample.Rate)),
			short(s.median(Sample.ClientCost)), short(s.median(Sample.ServerCost)),
			fmt.Sprintf("%.3f", s.median(tookQuantile(0.5))), fmt.Sprintf("%.3f", s.median(tookQuantile(0.99))),
		})
	}
	return t
}

func cycleVerdicts(clients int, all []Series) []Verdict {
	locktop := all[0]
	name := fmt.Sprintf("B1 clients=%d", clients)
	if clients == 1 {
		v := Verdict{name: name + " latency"}
		if raw, ok := seriesOf(all, "raw"); ok {
			v.atMost("raw", locktop.times(raw, tookQuantile(0.5)), latencyGoal)
		}
		return []Verdict{v}
	}
	speed := Verdict{name: name}
	for _, s := range all[1:] {
		if goal, ok := cycleGoals()[s.Name]; ok {
			speed.atLeast(s.Name, locktop.times(s, Sample.Rate), goal)
		}
	}
	cpu := Verdict{name: name + " cpu of redsync's"}
	if redsync, ok := seriesOf(all, "redsync"); ok {
		cpu.atMost("client", locktop.times(redsync, Sample.ClientCost), cpuGoal)
		cpu.atMost("server", locktop.times(redsync, Sample.ServerCost), cpuGoal)
	}
	return []Verdict{speed, cpu}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSuffix(noun, "s"))
}
