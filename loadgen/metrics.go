package loadgen

import "time"

// Metrics is what a run has done since it was last started. It is a value: a
// picture of one moment that nobody changes afterwards. In every one of them
//
//	Offered  = Arrivals + Backlog
//	Arrivals = Acquired + TimedOut + Refused + Errors + CutOff + Waiting
//	Acquired = Released + Expired + Lost + Unconfirmed + Abandoned + Holding
//	Clients  = Idle + Waiting + Holding + Dead = len(Cells)
type Metrics struct {
	Began   time.Time
	Elapsed time.Duration // since Start; stands still after Stop
	Running bool
	Clients int // simulated clients, dead ones too

	Idle    int // thinking, or backing off after an error
	Waiting int // trying to acquire
	Holding int // from the acquisition until the release is answered
	Dead    int // crashed, and not replaced yet

	Arrivals     int64 // attempts begun
	LateArrivals int64 // of them, those that no client was free for when they were due (open model)
	Backlog      int64 // due by now, and still without a client (open model)
	Acquired     int64
	Released     int64  // ended by their holder, in time
	Expired      int64  // ran out of time under their holder's feet
	Lost         int64  // were taken away under their holder's feet
	Unconfirmed  int64  // ended by their holder, in time, but the server did not answer: free within the TTL
	Abandoned    int64  // ended with a crash of their holder, or were forgotten
	TimedOut     int64  // gave up waiting
	Refused      int64  // gave up after so many tries
	Errors       int64  // attempts that ended in any other error
	CutOff       int64  // still waiting when Stop, SetClients or a stage ended them
	LastErr      string // the newest error of an attempt or a release, "" if none; may hold bytes from the server

	Wait      Latency  // of all arrivals, from the arrival (in the open model the intended one) to the acquisition, or to the end of the attempt; after Stop also of the Backlog
	Service   Latency  // of a release: one command there and back
	Held      Latency  // from the acquisition to the release
	Handoff   Latency  // from a release to the next acquisition, when somebody was waiting
	RenewLate Latency  // how late renewals were sent
	Seconds   []Second // the newest [HistorySeconds] at most, oldest first; the last one is still going on

	Attempts    int64   // requests for a lock, as far as they led to a hold
	Renewals    int64   // of leases
	Commands    int64   // sent to Redis by the clients, all of them
	Utilisation float64 // share of the time for which a key was held, mean over the keys that were wanted
	Fairness    Fairness
	Server      ServerUsage

	Overlap     Overlap        // of holds as long as their leases last: what the lock promises to exclude
	WorkOverlap Overlap        // of the work itself, from enter to leave, whatever the leases say: what fencing is for
	Untold      int64          // leases that were over without their context ending
	LostAlone   int64          // leases that were renewed, and were lost though nothing explains it
	Overtaken   int64          // acquisitions of a fair lock by a client that came when another was in the queue already
	NumberFell  int64          // fencing numbers that were not larger than the one before
	Faults      []FaultOutcome // of the scenario, in its order
	Outage      Outage
	Stall       Stall

	LateWork            LateWorkStats
	Fenced              int64 // stale writes that the protected resource refused
	AcceptedStaleWrites int64 // stale writes that it accepted
	Stuck               int64 // times that nobody could take a key for more than 3 TTLs though somebody wanted it
	ForeignUnlocks      int64 // releases that removed somebody else's lock
	Evidence            []Evidence

	Cells []ClientState // one per client, in the order of their numbers
}

// HistorySeconds is how many seconds of a run [Metrics] tells apart.
const HistorySeconds = 120

// Latency is a distribution, summed up. The percentiles are within 1%, Max is exact.
type Latency struct {
	Count                               int64
	Censored                            int64 // of Count, those that ended without what they waited for: each counts as long as it lasted, and would have been longer
	Mean, P50, P90, P95, P99, P999, Max time.Duration
}

// Second is one second of a run.
type Second struct {
	Acquired int64
	Wait     Latency // of the attempts that ended in this second
}

// Fairness tells how evenly the clients were served.
type Fairness struct {
	Jain    float64       // of the acquisitions per client: 1 = all the same, 1/n = one got everything; 0 before the first
	Starved time.Duration // the longest wait, also of clients that gave up or still wait, and of arrivals without a client
	Streak  int           // most acquisitions in a row of one key by one client while others waited
}

// ServerUsage is what the server says it spent, on everybody. Zero if it does not say.
type ServerUsage struct {
	CPU time.Duration // of the server's process
}

// Overlap tells how often a lock broke its promise.
type Overlap struct {
	Count   int64         // acquisitions granted while another client was inside the same critical section
	Excused int64         // of them, those after a fault that no lock survives: its key was deleted, or the memory of its server
	Total   time.Duration // time inside together, summed over those who left while another was inside
	Longest time.Duration // the longest time that two clients were inside together, of those that are over
}

// LateWorkStats tells of work after the worker's own deadline.
type LateWorkStats struct {
	Count          int64
	Total, Longest time.Duration
}

// Evidence is one violation, with both sides of it. In true time: all clients
// are in one process.
type Evidence struct {
	Violation     EventKind
	Key           string
	At            time.Time
	Length        time.Duration
	First, Second Side   // in the order in which they came; Second is empty for late-work and stuck
	Cause         string // the fault or the flaw that brought it about, "" if none is known
}

// Side is one party to a violation.
type Side struct {
	Client   int // counted from 1; 0 = nobody
	Token    string
	Fence    int64
	Reader   bool
	From, To time.Time // inside
	Deadline time.Time // of its lease
}

// maxEvidence is how many violations are kept with their evidence: the first ones
// of each kind. All are counted.
const maxEvidence = 20

// ClientState is what one simulated client is doing.
type ClientState uint8

// What a client can be doing.
const (
	Thinking ClientState = iota
	Queued
	Inside
	Frozen      // gets no CPU
	Partitioned // no packets get through
	Dead        // crashed
)

// String returns the word for a legend.
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
