package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

// recorder counts what the clients of one fleet do. Every step of a client is
// one change under one mutex, and so is every picture: that is why the sums that
// [Metrics] promises hold in all of them. All methods may be called from any
// goroutine.
type recorder struct {
	attempts atomic.Int64

	mu       sync.Mutex
	began    time.Time
	ended    time.Time // zero while the fleet is running
	totals   Metrics   // its counters, gauges and newest error
	clients  []record  // by client number
	timeline *timeline

	wait, service, held, handoff, renewLate *histogram
}

// record is what is known of one client.
type record struct {
	present  bool
	state    ClientState // Thinking, Queued, Inside or Dead
	trouble  ClientState // Frozen or Severed; Thinking = none
	acquired int64
	since    time.Time // waits since then, if it does
}

// outcome is how an attempt, or a hold, ended.
type outcome uint8

const (
	acquired outcome = iota // how an attempt ends
	timedOut
	refused
	failed
	calledOff

	released // how a hold ends
	expired
	lost
	unconfirmed
	abandoned

	crashed // how either does
)

// event returns the kind of event that an outcome is, "" if it is none.
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

// reset begins the figures anew. Whoever waits has just arrived for them, and whoever
// holds has just acquired.
func (r *recorder) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.totals
	*t = Metrics{
		Clients: t.Clients, Idle: t.Idle, Waiting: t.Waiting, Holding: t.Holding, Dead: t.Dead, LastErr: t.LastErr,
		Arrivals: int64(t.Waiting + t.Holding), Acquired: int64(t.Holding),
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
	for range t.Holding {
		r.wait.add(0) // as long as they waited since
	}
}

// join begins to count a client, which is thinking.
func (r *recorder) join(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client >= len(r.clients) {
		r.clients = append(r.clients, record{})
	}
	c := &r.clients[client]
	c.present, c.state, c.trouble = true, Thinking, Thinking
	r.totals.Clients++
	r.totals.Idle++
}

// part ends what join began. The client must be thinking.
func (r *recorder) part(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].present = false
	r.totals.Clients--
	r.totals.Idle--
}

// arrive counts the beginning of an attempt that was due then; late is whether it
// should have begun before.
func (r *recorder) arrive(client int, due time.Time, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state, c.since = Queued, due
	r.totals.Idle--
	r.totals.Waiting++
	r.totals.Arrivals++
	if late {
		r.totals.LateArrivals++
	}
}

// giveUp counts an attempt that ended, now, without a lease.
func (r *recorder) giveUp(client int, now time.Time, how outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state = Thinking
	r.totals.Waiting--
	r.totals.Idle++
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

// unserved counts an arrival for which no client came until the end.
func (r *recorder) unserved(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Fairness.Starved = max(r.totals.Fairness.Starved, wait)
	r.wait.addCensored(wait)
}

// acquire counts an attempt that ended, now, in a hold.
func (r *recorder) acquire(client int, now time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state = Inside
	c.acquired++
	r.totals.Waiting--
	r.totals.Holding++
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
	r.totals.Holding--
	r.totals.Idle++
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

// die and revive count a client that was thinking as dead, and back.
func (r *recorder) die(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[client].state = Dead
	r.totals.Idle--
	r.totals.Dead++
}

func (r *recorder) revive(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.clients[client]
	c.state, c.trouble = Thinking, Thinking
	r.totals.Dead--
	r.totals.Idle++
}

// mark shows a client as frozen or cut off, until unmark.
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

// serve notes how long a release took, handOver how long a lock was free though
// somebody waited, renew how late a renewal was.
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
	r.totals.Renewals++
	r.renewLate.add(late)
}

// complain notes an error of what is around the clients.
func (r *recorder) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.LastErr = err.Error()
}

// stop lets the clock of the figures stand still.
func (r *recorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = now
}

// spent notes what the servers needed for the run.
func (r *recorder) spent(cpu time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Server.CPU = cpu
}

// metrics returns a picture of now, without what the oracle knows.
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
	m.Attempts = r.attempts.Load()
	m.Wait, m.Service, m.Held = r.wait.latency(), r.service.latency(), r.held.latency()
	m.Handoff, m.RenewLate = r.handoff.latency(), r.renewLate.latency()
	m.Seconds = r.timeline.seconds(m.Elapsed)
	m.Cells = make([]ClientState, 0, m.Clients)
	var sum, squares, n float64
	for i := range r.clients {
		c := &r.clients[i]
		if c.present {
			m.Cells = append(m.Cells, c.cell())
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

// cell is what to draw of a client: its trouble before its doings.
func (c *record) cell() ClientState {
	if c.trouble != Thinking && c.state != Dead {
		return c.trouble
	}
	return c.state
}
