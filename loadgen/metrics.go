package loadgen

import "time"

// Metrics is what a run has done since it was last started. It is a value: a
// picture of one moment that nobody changes afterwards. In every one of them
//
//	Arrivals = Acquired + TimedOut + Errors + Waiting
//	Acquired = Released + Lost + Unconfirmed + Holding
//	Clients  = Idle + Waiting + Holding = len(Cells)
type Metrics struct {
	Elapsed time.Duration // since Start; stands still after Stop
	Running bool
	Clients int // simulated clients alive

	Idle    int // thinking, or backing off after an error
	Waiting int // trying to acquire
	Holding int // from the acquisition until the release is answered

	Arrivals    int64 // attempts begun, less those that Stop or SetClients called off while they waited
	Acquired    int64
	Released    int64  // ended by their holder, in time
	Lost        int64  // ended under their holder's feet: expired or taken away
	Unconfirmed int64  // ended by their holder, in time, but the server did not answer: free within the TTL
	TimedOut    int64  // gave up waiting
	Errors      int64  // attempts that ended in any other error
	LastErr     string // the newest error of an attempt or a release, "" if none; may hold bytes from the server

	Wait    Latency  // from the arrival to the acquisition, whole run
	Seconds []Second // the newest [HistorySeconds] at most, oldest first; the last one is still going on
	Overlap Overlap
	Cells   []Cell // one per client, in the order of their numbers
}

// HistorySeconds is how many seconds of a run [Metrics] tells apart.
const HistorySeconds = 120

// Latency is a distribution, summed up. P50 and P99 are within 1%, Max is exact.
type Latency struct{ P50, P99, Max time.Duration }

// Second is one second of a run.
type Second struct {
	Acquired int64
	Wait     Latency
}

// Overlap tells how often a lock broke its promise.
type Overlap struct {
	Count   int64         // acquisitions granted while another client was inside the same critical section
	Longest time.Duration // the longest time that two clients were inside together, of those that are over
}

// Cell is what one simulated client is doing.
type Cell uint8

// What a client can be doing.
const (
	Thinking Cell = iota
	Queued
	Inside
)
