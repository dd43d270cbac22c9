package contest

import (
	"context"
	"fmt"
	"math"
)

// b9 measures how the cost of a scan grows with the number of keys and of
// locks.
func b9(ctx context.Context, a *Arena, size Size) (Result, error) {
	keys, locks := []int{10_000, 100_000, 1_000_000}, []int{100, 1000, 10_000, 100_000}
	if size == Quick {
		keys, locks = keys[:2], locks[:3]
	}
	result := Result{
		Title: "B9: how the cost of looking grows",
		About: "One look at the whole keyspace, as fast as it goes. The exponent is that of the growth from the row before: 1 is as fast as the number itself.",
	}
	byKeys, err := a.curve(ctx, "keys, with 100 locks among them", keys, func(n int) (int, int) { return n, 100 })
	if err != nil {
		return result, fmt.Errorf("B9: %w", err)
	}
	byLocks, err := a.curve(ctx, "locks, among as many other keys and 10,000 more", locks, func(n int) (int, int) { return n + 10_000, n })
	if err != nil {
		return result, fmt.Errorf("B9: %w", err)
	}
	v := Verdict{name: "B9"}
	v.atMost("keys-exponent", byKeys.steepest, 1.2)
	v.atMost("locks-exponent", byLocks.steepest, 1.2)
	result.Verdicts = []Verdict{v}
	result.Tables = []Table{byKeys.Table, byLocks.Table}
	return result, nil
}

// curve is a table of the costs of a scan at several sizes.
type curve struct {
	Table
	steepest float64 // exponent
}

func (a *Arena) curve(ctx context.Context, title string, sizes []int, of func(n int) (keys, locks int)) (curve, error) {
	g := curve{Table: Table{Title: title, Columns: []string{"s", "commands", "server, s", "exponent"}}}
	var before float64
	for i, n := range sizes {
		keys, locks := of(n)
		if err := a.haystack(ctx, keys, locks); err != nil {
			return g, err
		}
		var took []float64
		var last search
		for range 3 {
			s, err := a.find(ctx, nil)
			if err != nil {
				return g, err
			}
			took, last = append(took, s.took.Seconds()), s
		}
		now, exponent := middle(took), ""
		if i > 0 {
			e := math.Log(now/before) / math.Log(float64(n)/float64(sizes[i-1]))
			g.steepest, exponent = max(g.steepest, e), short(e)
		}
		before = now
		g.Rows = append(g.Rows, []string{fmt.Sprint(n), fmt.Sprintf("%.3f", now), fmt.Sprint(last.snap.Cost.Commands), fmt.Sprintf("%.3f", last.snap.Cost.ServerTime.Seconds()), exponent})
	}
	return g, nil
}
