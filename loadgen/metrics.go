package loadgen

import "time"

// Metrics is what a run has done so far. It is a value: a picture of one moment
// that nobody changes afterwards. Arrivals = Acquired + TimedOut + Errors +
// Waiting, always.
type Metrics struct {
	Elapsed time.Duration // since Start; stands still after Stop
	Running bool
	Clients int // simulated clients alive

	Idle    int // thinking
	Waiting int // trying to acquire
	Holding int // inside the critical section

	Arrivals int64 // attempts begun
	Acquired int64
	Released int64 // ended by their holder, in time
	Lost     int64 // ended under their holder's feet: expired or taken away
	TimedOut int64 // gave up waiting
	Errors   int64
	LastErr  string // the newest error, "" if none

	Wait    Latency // from the intended start to the acquisition, whole run
	Seconds []Second
	Overlap Overlap
	Cells   []Cell // one per client, in the order of their numbers
}

// Latency is a distribution, summed up.
type Latency struct{ P50, P99, Max time.Duration }

// Second is one second of a run.
type Second struct {
	Acquired int64
	Wait     Latency
}

// Overlap counts how often two clients were inside one critical section at
// once: what a lock exists to prevent.
type Overlap struct {
	Count   int64
	Longest time.Duration
}

// Cell is what one simulated client is doing.
type Cell uint8

// What a client can be doing.
const (
	Thinking Cell = iota
	Queued
	Inside
)
