package contest

import "context"

// Benchmark is one measurement.
type Benchmark struct {
	Name string
	Run  func(context.Context, *Arena, Size) (Result, error)
}

// Benchmarks returns all benchmarks in the order in which they run.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{"B1", b1},
		{"B2", b2},
		{"B3", b3},
		{"B4", b4},
		{"B9", b9},
	}
}

// Size is the duration of a run.
type Size uint8

// Quick is for a check during development, Full for docs/benchmarks.md.
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
