package contest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Benchmark is one measurement.
type Benchmark struct {
	Name string
	Run  func(context.Context, *Testbed, Size) (Result, error)
}

// Benchmarks returns all benchmarks in the order in which they run.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{"B1", uncontended},
		{"B2", hotKey},
		{"B3", renewal},
		{"B4", scanCost},
		{"B5", readWrite},
		{"B9", scanGrowth},
		{"B10", observed},
		{"B11", screen},
	}
}

// Size is the duration of a run.
type Size uint8

// Quick is for a check during development, Full for lab/docs/benchmarks.md.
const (
	Full Size = iota
	Quick
)

// Result is the result of a benchmark.
type Result struct {
	Title    string
	About    string // what was measured, as text
	Tables   []Table
	Verdicts []Verdict
}

// Table is a table of figures.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string // the first cell is the contender
}

// figure computes a number from a sample.
type figure func(Sample) float64

// quantile returns the duration below which the share q of durations lies, in
// ms. The durations must be in ascending order.
func quantile(durations []time.Duration, q float64) float64 {
	if len(durations) == 0 {
		return 0
	}
	i := min(int(q*float64(len(durations))), len(durations)-1)
	return float64(durations[i]) / float64(time.Millisecond)
}

func waitQuantile(q float64) figure {
	return func(s Sample) float64 { return quantile(s.Waits, q) }
}

func tookQuantile(q float64) figure {
	return func(s Sample) float64 { return quantile(s.Took, q) }
}

// median returns the median of a figure over the rounds.
func (s Series) median(f figure) float64 {
	values := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		values[i] = f(r)
	}
	return median(values)
}

// times returns a figure as a multiple of other's: the median of the quotients
// within each round.
func (s Series) times(other Series, f figure) float64 {
	quotients := make([]float64, len(s.Rounds))
	for i := range s.Rounds {
		quotients[i] = f(s.Rounds[i]) / f(other.Rounds[i])
	}
	return median(quotients)
}

func median(values []float64) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half]
	}
	return (values[half-1] + values[half]) / 2
}

// seriesOf returns the series of a contender, which must be among them.
func seriesOf(all []Series, name string) Series {
	return all[slices.IndexFunc(all, func(s Series) bool { return s.Name == name })]
}

// column is a column of a table of series.
type column struct {
	title string
	cell  func(Series) string
}

// shortly returns the cells with the medians of a figure, with their significant digits.
func shortly(f figure) func(Series) string {
	return func(s Series) string { return short(s.median(f)) }
}

// exactly returns the cells with the medians of a figure in a format.
func exactly(format string, f figure) func(Series) string {
	return func(s Series) string { return fmt.Sprintf(format, s.median(f)) }
}

// tableOf returns a table with a row for each series.
func tableOf(title string, all []Series, columns []column) Table {
	t := Table{Title: title}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.title)
	}
	for _, s := range all {
		row := []string{s.Name}
		for _, c := range columns {
			row = append(row, c.cell(s))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Verdict compares figures of one measurement with their goals.
type Verdict struct {
	Name    string
	Figures []Goal
}

// Goal is a figure and its goal.
type Goal struct {
	Label   string
	Value   float64
	Bound   string // such as "≥ 4.0"
	Reached bool
}

// String returns a line: the name of the measurement, the figures, and ok or short.
func (v Verdict) String() string {
	var b strings.Builder
	b.WriteString(v.Name)
	end := "ok"
	for _, g := range v.Figures {
		fmt.Fprintf(&b, " %s=%s", g.Label, short(g.Value))
		if !g.Reached {
			end = "short"
		}
	}
	return b.String() + " " + end
}

// Row returns the goal as the cells of a table: figure, value, goal, and whether it is reached.
func (g Goal) Row() []string {
	reached := "yes"
	if !g.Reached {
		reached = "**no**"
	}
	return []string{g.Label, short(g.Value), g.Bound, reached}
}

// atLeast adds a figure with a minimum.
func (v *Verdict) atLeast(label string, value, goal float64) {
	v.Figures = append(v.Figures, Goal{label, value, "≥ " + short(goal), value >= goal})
}

// atMost adds a figure with a maximum.
func (v *Verdict) atMost(label string, value, goal float64) {
	v.Figures = append(v.Figures, Goal{label, value, "≤ " + short(goal), value <= goal})
}

// short formats a figure with its significant digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 2:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
