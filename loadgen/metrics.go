package loadgen

import (
	"sync"
	"sync/atomic"
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

	Library string // name of the client processes, as they say; "" for all kinds but [Exec]

	Counts         // of attempts and holds
	LastErr string // newest error of an attempt or a release, "" if there is none; may hold bytes from the server

	Clients     ClientCounts
	Latency     Latencies
	Seconds     []Second // newest seconds, at most [HistorySeconds], oldest first; the last is not over
	Cost        Cost
	Utilisation float64 // share of the time in which a key was held, mean over the requested keys
	Fairness    Fairness

	Violations oracle.Violations // a key is stuck after 3 TTLs
	Oracles    int               // number of processes of which each one's oracle sees only its own clients; 0 = one oracle sees all clients
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
	CutOff       int64 // attempts that Stop, Apply or a stage ended
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
	return [...]string{"thinking", "waiting", "holding", "frozen", "cut off", "dead"}[c]
}

// Offered returns the number of arrivals with and without a client.
func (m Metrics) Offered() int64 { return m.Arrivals + m.Backlog }

// recorder counts what the clients of one fleet do. Every step of a client is one
// change under the mutex, and metrics copies all figures under the same mutex.
// Therefore the sums of [Metrics] always hold. All methods are safe for concurrent use.
type recorder struct {
	attempts atomic.Int64
	first    int // number of the first client

	mu       sync.Mutex
	began    time.Time
	ended    time.Time // zero while the fleet runs
	totals   Metrics   // only counters, gauges and the newest error
	clients  []record  // by client number less first
	timeline *timeline
	unsent   []SecondShare // that ended since the last snapshot; see [Run.Snapshot]
	histograms
}

// record is the state of one client.
type record struct {
	present  bool
	state    ClientState // Thinking, Queued, Inside or Dead
	trouble  ClientState // Frozen or Partitioned; Thinking = none
	acquired int64
	since    time.Time // begin of the wait, if Queued
}

// outcome is how an attempt or a hold ends.
type outcome uint8

const (
	acquired outcome = iota // outcomes of an attempt
	timedOut
	refused
	failed
	calledOff

	released // outcomes of a hold
	expired
	lost
	unconfirmed
	abandoned

	crashed // outcome of both
)

// eventOf is the kind of event of an outcome, "" if there is none.
var eventOf = map[outcome]EventKind{
	acquired: Acquired, timedOut: TimedOut, refused: Refused, failed: Failed, unconfirmed: Failed,
	released: Released, expired: Expired, lost: Lost, abandoned: Abandoned, crashed: Abandoned,
}

func newRecorder(now time.Time, first int) *recorder {
	return &recorder{first: first, began: now, timeline: newTimeline(), histograms: newHistograms()}
}

// reset restarts the metrics. It counts waiting clients as new arrivals, and holders as
// new holders.
func (r *recorder) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.totals
	*t = Metrics{
		Clients: t.Clients, LastErr: t.LastErr,
		Counts: Counts{Arrivals: int64(t.Clients.Waiting + t.Clients.Holding), Acquired: int64(t.Clients.Holding)},
	}
	for i := range r.clients {
		r.clients[i].acquired = 0
		if r.clients[i].state == Inside {
			r.clients[i].acquired = 1
		}
	}
	r.attempts.Store(0)
	keep := r.timeline.keep
	r.began, r.timeline = now, newTimeline()
	r.timeline.keep = keep
	r.unsent = nil
	for _, h := range r.all() {
		h.reset()
	}
	for range t.Clients.Holding {
		r.wait.add(0) // earlier waiting does not count
	}
}

// move moves a client from one count to another.
func move(from, to *int) { *from, *to = *from-1, *to+1 }

// of returns the record of a client. r.mu must be held.
func (r *recorder) of(client int) *record { return &r.clients[client-r.first] }

// clientJoined adds a client, which is thinking.
func (r *recorder) clientJoined(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client-r.first >= len(r.clients) {
		r.clients = append(r.clients, record{})
	}
	c := r.of(client)
	c.present, c.state, c.trouble = true, Thinking, Thinking
	r.totals.Clients.Total++
	r.totals.Clients.Idle++
}

// arrive counts an attempt that was due at due; late means that no client was free
// then.
func (r *recorder) arrive(client int, due time.Time, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(client)
	c.state, c.since = Queued, due
	move(&r.totals.Clients.Idle, &r.totals.Clients.Waiting)
	r.totals.Arrivals++
	if late {
		r.totals.LateArrivals++
	}
}

// giveUp counts an attempt that ends without a lease.
func (r *recorder) giveUp(client int, now time.Time, how outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(client)
	c.state = Thinking
	move(&r.totals.Clients.Waiting, &r.totals.Clients.Idle)
	switch how {
	case timedOut:
		r.totals.TimedOut++
	case refused:
		r.totals.Refused++
	case calledOff:
		r.totals.CutOff++
	default:
		r.totals.Errors++
		r.totals.LastErr = err.Error()
	}
	wait := now.Sub(c.since)
	r.totals.Fairness.Starved = max(r.totals.Fairness.Starved, wait)
	r.wait.addCensored(wait)
	r.timeline.advance(now.Sub(r.began))
	r.timeline.wait.addCensored(wait)
}

// acquire counts an attempt that ends in a hold.
func (r *recorder) acquire(client int, now time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(client)
	c.state = Inside
	c.acquired++
	move(&r.totals.Clients.Waiting, &r.totals.Clients.Holding)
	r.totals.Acquired++
	r.totals.Fairness.Starved = max(r.totals.Fairness.Starved, wait)
	r.wait.add(wait)
	r.timeline.add(now.Sub(r.began), wait)
}

// end counts the end of a hold.
func (r *recorder) end(client int, how outcome, held time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(client).state = Thinking
	move(&r.totals.Clients.Holding, &r.totals.Clients.Idle)
	r.held.add(held)
	switch how {
	case released:
		r.totals.Released++
	case expired:
		r.totals.Expired++
	case lost:
		r.totals.Lost++
	case abandoned, crashed:
		r.totals.Abandoned++
	default:
		r.totals.Unconfirmed++
		r.totals.LastErr = err.Error()
	}
}

// trouble shows a client as frozen or partitioned until over is called.
func (r *recorder) trouble(client int, trouble ClientState) (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(client).trouble = trouble
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c := r.of(client); c.trouble == trouble {
			c.trouble = Thinking
		}
	}
}

// observe records a duration in a histogram of the recorder.
func (r *recorder) observe(h *histogram, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.add(d)
}

// update changes the figures that are not those of a client.
func (r *recorder) update(change func(*Metrics)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.totals)
}

// setError records an error of the fleet, not of a client.
func (r *recorder) setError(err error) { r.update(func(m *Metrics) { m.LastErr = err.Error() }) }

// metrics returns the metrics without the part of the oracle.
func (r *recorder) metrics(now time.Time) Metrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.totals
	m.Began = r.began
	m.Running = r.ended.IsZero()
	if !m.Running {
		now = r.ended
	}
	m.Elapsed = now.Sub(r.began)
	m.Cost.Attempts = r.attempts.Load()
	m.Latency = r.latencies()
	m.Seconds = r.timeline.seconds(m.Elapsed)
	m.Clients.States = make([]ClientState, 0, m.Clients.Total)
	var sum, squares, n float64
	for i := range r.clients {
		c := &r.clients[i]
		if c.present {
			state := c.state
			if c.trouble != Thinking && state != Dead {
				state = c.trouble
			}
			m.Clients.States = append(m.Clients.States, state)
		}
		if c.present && c.state == Queued {
			m.Fairness.Starved = max(m.Fairness.Starved, now.Sub(c.since))
		}
		n++
		sum += float64(c.acquired)
		squares += float64(c.acquired) * float64(c.acquired)
	}
	m.Fairness.Jain = ratio(sum*sum, n*squares)
	return m
}
