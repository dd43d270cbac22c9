package contest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	mutexName = "locktop"
	fairName  = "locktop fair"
)

// Goals of the Mutex with clients apart. The best peer is the one with the most
// hand-offs per second.
const (
	mutexCommandGoal      = 10   // commands per hand-off with 16 and 128 clients
	mutexManyCommandGoal  = 19   // commands per hand-off with 1,024 clients
	mutexFairRateGoal     = 1.3  // hand-offs per second to the fair lock's, with 128 clients that do not hold
	mutexBestPeerRateGoal = 0.98 // hand-offs per second to the best peer's, with 128 clients that hold for 1 ms
	mutexBestPeerWaitGoal = 0.25 // p99 wait to the best peer's, with 128 clients that hold for 1 ms
)

// Goals of the fair lock, with 128 clients that hold for 1 ms. All are ratios.
const (
	rateGoal       = 1.0     // hand-offs per second, to the best peer's
	waitGoal       = 1 / 8.0 // p99 wait, to the best peer's
	serverCostGoal = 1.0     // server CPU per hand-off, to the best peer's
	spreadGoal     = 1.3     // p99 wait to p50
	growthGoal     = 1.1     // commands per hand-off with 1,024 clients to those with 16
)

// hotKeyCell is one setting of B2.
type hotKeyCell struct {
	clients int
	apart   bool
	hold    time.Duration
}

func (c hotKeyCell) String() string {
	return fmt.Sprintf("clients=%d %s hold=%v", c.clients, c.where(), c.hold)
}

func (c hotKeyCell) where() string {
	if c.apart {
		return "apart"
	}
	return "together"
}

// verdicts compares the results of the cell with its goals.
func (c hotKeyCell) verdicts(all []Series) []Verdict {
	var verdicts []Verdict
	if c.clients == 128 && c.hold > 0 {
		verdicts = append(verdicts, fairVerdict(c, all))
	}
	if c.apart && c.clients >= 16 {
		verdicts = append(verdicts, mutexVerdict(c, all))
	}
	return verdicts
}

// hotKey measures one key that all clients want.
func hotKey(ctx context.Context, t *Testbed, size Size) (Result, error) {
	result := Result{
		Title: "B2: one key that all clients want",
		About: "All clients lock one key, hold it, unlock it and want it again at once. Clients that are together are goroutines of one process and share its connections; apart, each is like a process of its own. A wait that the end of a window cut short counts with the time it had lasted. Commands are those that the server executed for a hand-off, inside scripts too.",
	}
	cells := []hotKeyCell{
		{16, false, 0}, {16, false, time.Millisecond}, {128, false, 0}, {128, false, time.Millisecond},
		{2, true, 0}, {16, true, 0}, {16, true, time.Millisecond}, {128, true, 0}, {128, true, time.Millisecond},
	}
	contenders := in(HotKey)
	rounds, work := 5, Work{Warm: 500 * time.Millisecond, Length: 2 * time.Second}
	if size == Quick {
		cells = []hotKeyCell{{128, false, time.Millisecond}, {128, true, time.Millisecond}}
		rounds = 1
	}
	for _, cell := range cells {
		all, err := t.hotKeyRounds(ctx, contenders, cell, rounds, work)
		if err != nil {
			return result, err
		}
		result.Tables = append(result.Tables, hotTable(cell, all))
		result.Verdicts = append(result.Verdicts, cell.verdicts(all)...)
	}
	if size == Quick {
		return result, nil
	}
	return t.queueGrowth(ctx, result, work)
}

func (t *Testbed) hotKeyRounds(ctx context.Context, contenders []Contender, cell hotKeyCell, rounds int, work Work) ([]Series, error) {
	work.Hold = cell.hold
	s := Setting{Clients: cell.clients, Apart: cell.apart, Hot: true, Lease: longLease(), Work: work}
	all, err := t.runRounds(ctx, contenders, rounds, s)
	if err != nil {
		return nil, fmt.Errorf("B2, %v: %w", cell, err)
	}
	return all, nil
}

// queueGrowth measures the cost of a hand-off as the queue grows.
func (t *Testbed) queueGrowth(ctx context.Context, result Result, work Work) (Result, error) {
	contenders := slices.DeleteFunc(in(HotKey), func(c Contender) bool { return !ours(c.Name) })
	table := Table{Title: "commands a hand-off as the queue grows", Columns: []string{"16 clients", "128 clients", "1,024 clients"}}
	for _, c := range contenders {
		table.Rows = append(table.Rows, []string{c.Name})
	}
	grown := Verdict{Name: "B2 fair commands"}
	var first float64
	work.Warm = 3 * time.Second // starting so many clients takes a while
	for _, clients := range []int{16, 128, 1024} {
		all, err := t.hotKeyRounds(ctx, contenders, hotKeyCell{clients, true, time.Millisecond}, 3, work)
		if err != nil {
			return result, err
		}
		for i, s := range all {
			commands := s.median(Sample.CommandCost)
			table.Rows[i] = append(table.Rows[i], short(commands))
			switch {
			case s.Name == fairName && clients == 16:
				first = commands
			case s.Name == mutexName && clients == 1024:
				v := Verdict{Name: "B2 clients=1024 mutex"}
				v.atMost("commands", commands, mutexManyCommandGoal)
				result.Verdicts = append(result.Verdicts, v)
			case s.Name == fairName && clients == 1024:
				grown.atMost("1024/16", commands/first, growthGoal)
				result.Verdicts = append(result.Verdicts, grown)
			}
		}
	}
	result.Tables = append(result.Tables, table)
	return result, nil
}

func hotTable(cell hotKeyCell, all []Series) Table {
	return tableOf(cell.String(), all, []column{
		{"hand-offs/s", exactly("%.0f", Sample.Rate)}, {"wait p50 ms", shortly(waitQuantile(0.5))}, {"p99 ms", shortly(waitQuantile(0.99))},
		{"commands", shortly(Sample.CommandCost)}, {"server µs", shortly(Sample.ServerCost)}, {"client µs", shortly(Sample.ClientCost)},
	})
}

// fairVerdict compares the fair lock with the best peer for each figure.
func fairVerdict(cell hotKeyCell, all []Series) Verdict {
	v := Verdict{Name: fmt.Sprintf("B2 %v fair", cell)}
	fair := seriesOf(all, fairName)
	rate, wait, server := math.Inf(1), 0.0, 0.0
	for _, s := range all {
		if ours(s.Name) {
			continue
		}
		rate = min(rate, fair.times(s, Sample.Rate))
		wait = max(wait, fair.times(s, waitQuantile(0.99)))
		server = max(server, fair.times(s, Sample.ServerCost))
	}
	v.atLeast("rate", rate, rateGoal)
	v.atMost("p99", wait, waitGoal)
	v.atMost("server", server, serverCostGoal)
	v.atMost("p99/p50", fair.median(waitSpread), spreadGoal)
	return v
}

// mutexVerdict compares the Mutex with its goals for clients apart.
func mutexVerdict(cell hotKeyCell, all []Series) Verdict {
	v := Verdict{Name: fmt.Sprintf("B2 %v mutex", cell)}
	mutex, fair := seriesOf(all, mutexName), seriesOf(all, fairName)
	v.atMost("commands", mutex.median(Sample.CommandCost), mutexCommandGoal)
	switch {
	case cell.clients != 128:
	case cell.hold == 0:
		v.atLeast("rate of fair", mutex.times(fair, Sample.Rate), mutexFairRateGoal)
	default:
		peers := slices.DeleteFunc(slices.Clone(all), func(s Series) bool { return ours(s.Name) })
		best := slices.MaxFunc(peers, func(a, b Series) int {
			return cmp.Compare(a.median(Sample.Rate), b.median(Sample.Rate))
		})
		v.atLeast("rate of "+best.Name, mutex.times(best, Sample.Rate), mutexBestPeerRateGoal)
		v.atMost("p99", mutex.times(best, waitQuantile(0.99)), mutexBestPeerWaitGoal)
	}
	return v
}

// waitSpread returns the p99 wait divided by the p50 wait.
func waitSpread(s Sample) float64 { return quantile(s.Waits, 0.99) / quantile(s.Waits, 0.5) }

// ours reports whether a contender belongs to this project.
func ours(name string) bool { return strings.HasPrefix(name, "locktop") }
