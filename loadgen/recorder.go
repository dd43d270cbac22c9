package loadgen

import (
	"sync"
	"time"
)

// recorder counts what the clients of one fleet do. Every step of a client is
// one change under one mutex, and so is every picture: that is why the sums that
// [Metrics] promises hold in all of them. All methods may be called from any
// goroutine.
type recorder struct {
	mu       sync.Mutex
	began    time.Time
	ended    time.Time // zero while the fleet is running
	totals   Metrics   // its counters, gauges and newest error
	cells    []Cell    // by client number; absent between clients
	wait     *histogram
	timeline *timeline
}

// absent marks the number of a client that is no longer, or not yet, there.
const absent = Cell(0xff)

// outcome is how an attempt, or a hold, ended.
type outcome uint8

const (
	acquired outcome = iota // how an attempt ends
	timedOut
	failed
	calledOff

	released // how a hold ends
	lost
	unconfirmed
)

func newRecorder(now time.Time) *recorder {
	return &recorder{began: now, wait: newHistogram(), timeline: newTimeline()}
}

// join begins to count a client, which is thinking.
func (r *recorder) join(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client >= len(r.cells) {
		r.cells = append(r.cells, absent)
	}
	r.cells[client] = Thinking
	r.totals.Clients++
	r.totals.Idle++
}

// part ends what join began. The client must be thinking.
func (r *recorder) part(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client] = absent
	r.totals.Clients--
	r.totals.Idle--
}

// arrive counts the beginning of an attempt.
func (r *recorder) arrive(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client] = Queued
	r.totals.Idle--
	r.totals.Waiting++
	r.totals.Arrivals++
}

// giveUp counts an attempt that ended without a lease.
func (r *recorder) giveUp(client int, how outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client] = Thinking
	r.totals.Waiting--
	r.totals.Idle++
	switch how {
	case timedOut:
		r.totals.TimedOut++
	case calledOff:
		r.totals.Arrivals--
	default:
		r.totals.Errors++
		r.totals.LastErr = err.Error()
	}
}

// acquire counts an attempt that ended, now, in a hold.
func (r *recorder) acquire(client int, now time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client] = Inside
	r.totals.Waiting--
	r.totals.Holding++
	r.totals.Acquired++
	r.wait.add(wait)
	r.timeline.add(now.Sub(r.began), wait)
}

// end counts the end of a hold.
func (r *recorder) end(client int, how outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[client] = Thinking
	r.totals.Holding--
	r.totals.Idle++
	switch how {
	case released:
		r.totals.Released++
	case lost:
		r.totals.Lost++
	default:
		r.totals.Unconfirmed++
		r.totals.LastErr = err.Error()
	}
}

// stop lets the clock of the figures stand still.
func (r *recorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = now
}

// metrics returns a picture of now, but for the overlaps.
func (r *recorder) metrics(now time.Time) Metrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.totals
	m.Running = r.ended.IsZero()
	if !m.Running {
		now = r.ended
	}
	m.Elapsed = now.Sub(r.began)
	m.Wait = r.wait.latency()
	m.Seconds = r.timeline.seconds(m.Elapsed)
	m.Cells = make([]Cell, 0, m.Clients)
	for _, cell := range r.cells {
		if cell != absent {
			m.Cells = append(m.Cells, cell)
		}
	}
	return m
}
