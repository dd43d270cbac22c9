package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

// recorder counts what the clients of one fleet do. Every step of a client is one
// change under the mutex, and metrics copies all figures under the same mutex.
// Therefore the sums of [Metrics] always hold. All methods are safe for concurrent use.
type recorder struct {
	attempts atomic.Int64

	mu       sync.Mutex
	began    time.Time
	ended    time.Time // zero while the fleet runs
	totals   Metrics   // only counters, gauges and the newest error
	clients  []record  // by client number
	timeline *timeline

	wait, service, held, handoff, renewLate *histogram
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

// event returns the kind of event of an outcome, "" if there is none.
func (o outcome) event() EventKind {
	switch o {
	case acquired:
		return Acquired
	case timedOut:
		return TimedOut
	case refused:
		return Refused
	case failed, unconfirmed:
		return Failed
	case released:
		return Released
	case expired:
		return Expired
	case lost:
		return Lost
	case abandoned, crashed:
		return Abandoned
	}
	return ""
}

func newRecorder(now time.Time) *recorder {
	return &recorder{
		began: now, timeline: newTimeline(),
		wait: newHistogram(), service: newHistogram(), held: newHistogram(),
		handoff: newHistogram(), renewLate: newHistogram(),
	}
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
	r.began, r.timeline = now, newTimeline()
	for _, h := range []*histogram{r.wait, r.service, r.held, r.handoff, r.renewLate} {
		h.reset()
	}
	for range t.Clients.Holding {
		r.wait.add(0) // earlier waiting does not count
	}
}

// join adds a client, which is thinking.
func (r *recorder) join(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client >= len(r.clients) {
		r.clients = append(r.clients, record{})
	}
	c := &r.clients[client]
	c.present, c.state, c.trouble = true, Thinking, Thinking
	r.totals.Clients.Total++
	r.totals.Clients.Idle++
}

// part removes a client. It must be thinking.
func (r *recorder) part(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].present = false
	r.totals.Clients.Total--
	r.totals.Clients.Idle--
}

// arrive counts an attempt that was due at due; late means that no client was free
// then.
func (r *recorder) arrive(client int, due time.Time, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state, c.since = Queued, due
	r.totals.Clients.Idle--
	r.totals.Clients.Waiting++
	r.totals.Arrivals++
	if late {
		r.totals.LateArrivals++
	}
}

// giveUp counts an attempt that ends without a lease.
func (r *recorder) giveUp(client int, now time.Time, how outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state = Thinking
	r.totals.Clients.Waiting--
	r.totals.Clients.Idle++
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
	r.timeline.giveUp(now.Sub(r.began), wait)
}

// unserved counts an arrival that no client has served before the end of the run.
func (r *recorder) unserved(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Fairness.Starved = max(r.totals.Fairness.Starved, wait)
	r.wait.addCensored(wait)
}

// acquire counts an attempt that ends in a hold.
func (r *recorder) acquire(client int, now time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state = Inside
	c.acquired++
	r.totals.Clients.Waiting--
	r.totals.Clients.Holding++
	r.totals.Acquired++
	r.totals.Fairness.Starved = max(r.totals.Fairness.Starved, wait)
	r.wait.add(wait)
	r.timeline.add(now.Sub(r.began), wait)
}

// end counts the end of a hold.
func (r *recorder) end(client int, how outcome, held time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].state = Thinking
	r.totals.Clients.Holding--
	r.totals.Clients.Idle++
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

// die counts a thinking client as dead. Revive reverses this.
func (r *recorder) die(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].state = Dead
	r.totals.Clients.Idle--
	r.totals.Clients.Dead++
}

func (r *recorder) revive(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state, c.trouble = Thinking, Thinking
	r.totals.Clients.Dead--
	r.totals.Clients.Idle++
}

// mark shows a client as frozen or partitioned until unmark.
func (r *recorder) mark(client int, trouble ClientState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].trouble = trouble
}

func (r *recorder) unmark(client int, trouble ClientState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := &r.clients[client]; c.trouble == trouble {
		c.trouble = Thinking
	}
}

// serve records how long a release took. HandOver records how long a lock with waiters
// was free. Renew records how late a renewal was.
func (r *recorder) serve(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service.add(took)
}

func (r *recorder) handOver(gap time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handoff.add(gap)
}

func (r *recorder) renew(late time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Cost.Renewals++
	r.renewLate.add(late)
}

// complain records an error of the fleet, not of a client.
func (r *recorder) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.LastErr = err.Error()
}

// stop ends the elapsed time.
func (r *recorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = now
}

// spent records the CPU time of the servers.
func (r *recorder) spent(cpu time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Cost.CPU = cpu
}

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
	m.Latency.Wait, m.Latency.Release, m.Latency.Held = r.wait.latency(), r.service.latency(), r.held.latency()
	m.Latency.Handoff, m.Latency.RenewLate = r.handoff.latency(), r.renewLate.latency()
	m.Seconds = r.timeline.seconds(m.Elapsed)
	m.Clients.States = make([]ClientState, 0, m.Clients.Total)
	var sum, squares, n float64
	for i := range r.clients {
		c := &r.clients[i]
		if c.present {
			m.Clients.States = append(m.Clients.States, c.cell())
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

// cell returns the state to show: trouble takes precedence over state, except for a
// dead client.
func (c *record) cell() ClientState {
	if c.trouble != Thinking && c.state != Dead {
		return c.trouble
	}
	return c.state
}
