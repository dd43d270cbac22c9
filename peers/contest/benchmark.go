package contest

import "context"

// Benchmark is one thing that is measured.
type Benchmark struct {
	Name string
	Run  func(context.Context, *Arena, Size) (Result, error)
}

// Benchmarks returns all of them, in the order in which they run.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{"B1", b1},
		{"B2", b2},
		{"B3", b3},
		{"B4", b4},
		{"B9", b9},
	}
}

// Size is how thorough to be.
type Size uint8

// Quick is for a look while working, Full for the record.
const (
	Full Size = iota
	Quick
)

// Result is what came of a benchmark.
type Result struct {
	Title    string
	About    string // what was done, for people
	Tables   []Table
	Verdicts []Verdict
}

// Table is figures for people.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string // the first cell is the contender
}
