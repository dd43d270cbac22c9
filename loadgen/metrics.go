package loadgen

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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
	Utilisation float64 // share of the time in which a key was locked, by the leases of the clients, also of a dead one; mean over the requested keys
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
	Clients  int // most at once, including dead ones
	Acquired int64
	Errors   int64   // attempts that ended with an error
	Lost     int64   // holds that lost their lock, or outlived their lease
	Overlaps int64   // that ended in this second
	Faults   int64   // that began in this second
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
	totals   Metrics   // only counters and the newest error
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
	died // the client crashed, and has no lock

	released // outcomes of a hold
	expired
	lost
	unconfirmed
	abandoned
	crashed // the client crashed, and leaves its lock
)

// outcomes has the kind of event of each outcome, "" if it has none, and its count.
var outcomes = [...]struct {
	event EventKind
	count func(*Counts) *int64
}{
	acquired:    {Acquired, func(c *Counts) *int64 { return &c.Acquired }},
	timedOut:    {TimedOut, func(c *Counts) *int64 { return &c.TimedOut }},
	refused:     {Refused, func(c *Counts) *int64 { return &c.Refused }},
	failed:      {Failed, func(c *Counts) *int64 { return &c.Errors }},
	calledOff:   {"", func(c *Counts) *int64 { return &c.CutOff }},
	died:        {Abandoned, func(c *Counts) *int64 { return &c.Errors }},
	released:    {Released, func(c *Counts) *int64 { return &c.Released }},
	expired:     {Expired, func(c *Counts) *int64 { return &c.Expired }},
	lost:        {Lost, func(c *Counts) *int64 { return &c.Lost }},
	unconfirmed: {Failed, func(c *Counts) *int64 { return &c.Unconfirmed }},
	abandoned:   {Abandoned, func(c *Counts) *int64 { return &c.Abandoned }},
	crashed:     {Abandoned, func(c *Counts) *int64 { return &c.Abandoned }},
}

func newRecorder(now time.Time, of role) *recorder {
	r := &recorder{first: of.first(), began: now, timeline: &timeline{wait: newHistogram()}, histograms: newHistograms()}
	if of.agent > 0 {
		r.timeline.keep = r.keepSecond
	}
	return r
}

// reset restarts the metrics. It counts waiting clients as new arrivals, and holders as
// new holders.
func (r *recorder) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals = Metrics{LastErr: r.totals.LastErr}
	r.began, r.unsent = now, nil
	clients := r.timeline.clients
	*r.timeline = timeline{wait: newHistogram(), keep: r.timeline.keep, clients: clients, counts: Second{Clients: clients}}
	for _, h := range r.all() {
		h.reset()
	}
	r.attempts.Store(0)
	for i := range r.clients {
		c := &r.clients[i]
		c.acquired = 0
		if c.present && (c.state == Queued || c.state == Inside) {
			r.totals.Arrivals++
		}
		if c.present && c.state == Inside {
			c.acquired = 1
			r.totals.Acquired++
			r.wait.add(0) // earlier waiting does not count
		}
	}
}

// of returns the record of a client. r.mu must be held.
func (r *recorder) of(client int) *record { return &r.clients[client-r.first] }

// inside reports whether a client holds a lock.
func (r *recorder) inside(client int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(client).state == Inside
}

// clientJoined adds a client, which is thinking.
func (r *recorder) clientJoined(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client-r.first >= len(r.clients) {
		r.clients = append(r.clients, record{})
	}
	c := r.of(client)
	if !c.present {
		r.count(time.Now(), func(*Second) { r.timeline.clients++ })
	}
	c.present, c.state, c.trouble = true, Thinking, Thinking
}

// count changes the figures of the second of a time. r.mu must be held.
func (r *recorder) count(at time.Time, change func(*Second)) {
	t := r.timeline
	t.advance(at.Sub(r.began))
	change(&t.counts)
	t.counts.Clients = max(t.counts.Clients, t.clients)
}

// observe counts a step of a client.
func (r *recorder) observe(s step, of *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, t := r.of(of.client), &r.totals
	switch s {
	case asked:
		c.state, c.since = Queued, of.due
		t.Arrivals++
		if of.late {
			t.LateArrivals++
		}
		return
	case gaveUp:
		c.state = Thinking
		r.wait.addCensored(of.at.Sub(of.due))
		r.count(of.at, func(now *Second) {
			r.timeline.wait.addCensored(of.at.Sub(of.due))
			if of.how == failed || of.how == died {
				now.Errors++
			}
		})
	case entered:
		c.state = Inside
		c.acquired++
		r.wait.add(of.at.Sub(of.due))
		r.timeline.add(of.at.Sub(r.began), of.at.Sub(of.due))
	case freed:
		c.state = Thinking
		r.held.add(of.left.Sub(of.hold.Began))
		if of.released() {
			r.release.add(of.at.Sub(of.decided))
		}
		if of.how == lost || of.how == expired {
			r.count(of.at, func(now *Second) { now.Lost++ })
		}
	default:
		return
	}
	*outcomes[of.how].count(&t.Counts)++
	if s != freed {
		t.Fairness.Starved = max(t.Fairness.Starved, of.at.Sub(of.due))
	}
	if of.how == failed || of.how == died || of.how == unconfirmed {
		t.LastErr = of.err.Error()
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
	m.Clients.States = make([]ClientState, 0, len(r.clients))
	var states [Dead + 1]int
	var sum, squares, n float64
	for i := range r.clients {
		c := &r.clients[i]
		if c.present {
			states[c.state]++
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
	m.Clients.Total = len(m.Clients.States)
	m.Clients.Idle, m.Clients.Waiting, m.Clients.Holding, m.Clients.Dead = states[Thinking], states[Queued], states[Inside], states[Dead]
	return m
}

// histogram counts durations from 1 µs to 1 h with two significant digits. Longer ones
// count as 1 h, except in max. It takes 26 KB. It is not safe for concurrent use.
type histogram struct {
	hdr      *hdrhistogram.Histogram
	max      time.Duration
	censored int64
}

func newHistogram() *histogram {
	return &histogram{hdr: hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 2)}
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.max = max(h.max, d)
	// A value up to 1 h is never out of range.
	_ = h.hdr.RecordValue(int64(min(d, time.Hour)))
}

// addCensored adds the length of a wait that was cut off, a lower bound of the real
// one.
func (h *histogram) addCensored(d time.Duration) {
	h.add(d)
	h.censored++
}

func (h *histogram) reset() {
	h.hdr.Reset()
	h.max, h.censored = 0, 0
}

func (h *histogram) latency() Latency {
	p := h.hdr.ValueAtPercentilesSlice([]float64{50, 90, 95, 99, 99.9})
	// A percentile is the upper end of a bucket, which may be above the maximum.
	return Latency{
		Count:    h.hdr.TotalCount(),
		Censored: h.censored,
		Mean:     min(time.Duration(h.hdr.Mean()), h.max),
		P50:      min(time.Duration(p[0]), h.max),
		P90:      min(time.Duration(p[1]), h.max),
		P95:      min(time.Duration(p[2]), h.max),
		P99:      min(time.Duration(p[3]), h.max),
		P999:     min(time.Duration(p[4]), h.max),
		Max:      h.max,
	}
}

// histograms are the distributions of [Latencies].
type histograms struct{ wait, release, held, handoff, renewLate *histogram }

func newHistograms() histograms {
	return histograms{newHistogram(), newHistogram(), newHistogram(), newHistogram(), newHistogram()}
}

// all returns the histograms in the order of the fields.
func (h *histograms) all() []*histogram {
	return []*histogram{h.wait, h.release, h.held, h.handoff, h.renewLate}
}

func (h *histograms) latencies() Latencies {
	return Latencies{h.wait.latency(), h.release.latency(), h.held.latency(), h.handoff.latency(), h.renewLate.latency()}
}

// timeline holds the figures of each of the newest seconds of a run. Only the current
// second has a histogram.
type timeline struct {
	past    []Second // oldest first, at most HistorySeconds-1
	current int      // number of the current second
	counts  Second   // of the current second, without Wait
	wait    *histogram
	clients int // now

	keep func(number int, of Second, waits *histogram) // nil, or called for each second that ends
}

// add counts an acquire at a time since the start. If its second is over, the current
// second counts it.
func (t *timeline) add(at, wait time.Duration) {
	t.advance(at)
	t.counts.Acquired++
	t.wait.add(wait)
}

// advance closes every second that ended before a time since the start.
func (t *timeline) advance(at time.Duration) {
	elapsed := int(at/time.Second) - t.current
	if elapsed <= 0 {
		return
	}
	if t.keep != nil {
		t.keep(t.current, t.now(), t.wait)
	}
	t.past = append(t.past, t.now())
	// A gap longer than the history leaves only empty seconds.
	t.past = append(t.past, slices.Repeat([]Second{{Clients: t.clients}}, min(elapsed, HistorySeconds)-1)...)
	t.past = t.past[max(0, len(t.past)-(HistorySeconds-1)):]
	t.current += elapsed
	t.counts = Second{Clients: t.clients}
	t.wait.reset()
}

func (t *timeline) now() Second {
	now := t.counts
	now.Wait = t.wait.latency()
	return now
}

// seconds returns a copy of the history, with the current second last.
func (t *timeline) seconds(at time.Duration) []Second {
	t.advance(at)
	all := make([]Second, 0, len(t.past)+1)
	return append(append(all, t.past...), t.now())
}
