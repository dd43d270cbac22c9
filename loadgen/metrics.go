package loadgen

import (
	"time"

	"locktop/loadgen/oracle"
)

// Metrics are the figures of a run since its newest start. It is a value that never
// changes. These sums always hold:
//
//	Offered       = Arrivals + Backlog
//	Arrivals      = Acquired + TimedOut + Refused + Errors + CutOff + Clients.Waiting
//	Acquired      = Released + Expired + Lost + Unconfirmed + Abandoned + Clients.Holding
//	Clients.Total = Clients.Idle + Clients.Waiting + Clients.Holding + Clients.Dead = len(Clients.States)
type Metrics struct {
	Began   time.Time
	Elapsed time.Duration // since Start, or since the end of the warm-up, until Stop
	Running bool

	Counts         // of attempts and holds
	LastErr string // newest error of an attempt or a release, "" if there is none; may hold bytes from the server

	Clients     ClientCounts
	Latency     Latencies
	Seconds     []Second // newest seconds, at most [HistorySeconds], oldest first; the last is not over
	Cost        Cost
	Utilisation float64 // share of the time in which a key was held, mean over the requested keys
	Fairness    Fairness

	Violations oracle.Violations // a key is stuck after 3 TTLs
	Faults     []FaultOutcome    // of the scenario, in order
	Outage     Outage
	Stall      Stall
}

// Counts are how attempts and holds ended.
type Counts struct {
	Arrivals     int64 // started attempts
	LateArrivals int64 // those of Arrivals that had to wait for a client (open model)
	Backlog      int64 // due arrivals without a client (open model)
	Acquired     int64
	Released     int64 // holds that ended in time
	Expired      int64 // holds that outlived their lease
	Lost         int64 // holds whose lock was taken away
	Unconfirmed  int64 // holds that ended in time, but without a reply of the server: the lock is free after at most one TTL
	Abandoned    int64 // holds that ended with a crash, or without a release
	TimedOut     int64 // attempts that ended with the client's patience
	Refused      int64 // attempts that ended after the allowed number of tries
	Errors       int64 // attempts that ended with another error
	CutOff       int64 // attempts that Stop, SetClients or a stage ended
}

// ClientCounts are what the simulated clients do now.
type ClientCounts struct {
	Total   int // including dead ones
	Idle    int // thinking, or backing off after an error
	Waiting int // trying to acquire
	Holding int // from the acquire until the reply to the release
	Dead    int // crashed and not yet replaced

	States []ClientState // one per client, by number
}

// Latencies are the distributions of a run.
type Latencies struct {
	Wait      Latency // from the arrival (open model: when it is due) to the acquire or to the end of the attempt; after Stop it includes the Backlog
	Release   Latency // one request and its reply
	Held      Latency // from the acquire to the release
	Handoff   Latency // from a release to the next acquire, with waiters
	RenewLate Latency // delay of renewals
}

// Cost is what the clients and the servers spent.
type Cost struct {
	Attempts int64         // lock requests that led to a hold, including their retries
	Renewals int64         // of leases
	Commands int64         // all commands of the clients
	CPU      time.Duration // of the server processes, on all their clients; 0 = unknown
}

// HistorySeconds is the maximum length of [Metrics.Seconds].
const HistorySeconds = 120

// Latency summarizes a distribution. The error of a percentile is at most 1%. Max is
// exact.
type Latency struct {
	Count                               int64
	Censored                            int64 // part of Count: attempts that ended without success, counted with their length, which is a lower bound
	Mean, P50, P90, P95, P99, P999, Max time.Duration
}

// Second has the figures of one second of a run.
type Second struct {
	Acquired int64
	Wait     Latency // of attempts that ended in this second
}

// Fairness describes how evenly the clients got locks.
type Fairness struct {
	Jain    float64       // Jain's index of acquires per client: 1 = all equal, 1/n = one client got all; 0 before the first acquire
	Starved time.Duration // longest wait, including clients that gave up or still wait, and arrivals without a client
	Streak  int           // most acquires of one key in a row by one client while others waited
}

// ClientState is the state of one client.
type ClientState uint8

// States of a client.
const (
	Thinking ClientState = iota
	Queued
	Inside
	Frozen      // does not run
	Partitioned // packets are held back
	Dead        // crashed
)

// String returns the name of the state.
func (c ClientState) String() string {
	switch c {
	case Thinking:
		return "thinking"
	case Queued:
		return "waiting"
	case Inside:
		return "holding"
	case Frozen:
		return "frozen"
	case Partitioned:
		return "cut off"
	}
	return "dead"
}

// Offered returns the number of arrivals with and without a client.
func (m Metrics) Offered() int64 { return m.Arrivals + m.Backlog }
