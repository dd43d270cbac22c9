package loadgen

import (
	"context"
	"sync"
	"time"
)

// schedule says when clients arrive in the open model: the n-th when so much
// time has passed that n are due at the rate. Clients draw numbers in order and
// come when theirs is due, so nothing has to be awake in between, and a client
// that comes late knows when it should have come. All methods may be called from
// any goroutine.
type schedule struct {
	mu       sync.Mutex
	rate     float64 // a second; 0 = closed model: come whenever you like
	since    time.Time
	before   float64 // due before since
	drawn    int64
	returned []int64       // drawn by clients that left before it was due
	changed  chan struct{} // closed when the rate changes
}

func newSchedule(rate float64, now time.Time) *schedule {
	return &schedule{rate: rate, since: now, changed: make(chan struct{})}
}

// set changes the rate. Arrivals that are not due yet move.
func (s *schedule) set(rate float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rate == s.rate {
		return
	}
	s.before, s.since, s.rate = s.dueBy(now), now, rate
	close(s.changed)
	s.changed = make(chan struct{})
}

// dueBy returns how many arrivals are due by a moment, with the part of the next
// one that has passed.
func (s *schedule) dueBy(now time.Time) float64 {
	return s.before + now.Sub(s.since).Seconds()*s.rate
}

// due returns when arrival n, from 0, is due.
func (s *schedule) due(n int64) time.Time {
	return s.since.Add(time.Duration((float64(n) - s.before) / s.rate * float64(time.Second)))
}

// draw returns the number of the next arrival.
func (s *schedule) draw() int64 {
	if n := len(s.returned); n > 0 {
		drawn := s.returned[n-1]
		s.returned = s.returned[:n-1]
		return drawn
	}
	s.drawn++
	return s.drawn - 1
}

// punctual is how late an arrival may be without being called late.
const punctual = time.Millisecond

// next waits until the next arrival that nobody else comes for is due, and
// returns when that was; late is whether it was due before anybody came for it. Open is false, at
// once or after a change, if there is no schedule, and when stay ends.
func (s *schedule) next(stay context.Context) (due time.Time, late, open bool) {
	s.mu.Lock()
	if s.rate == 0 {
		s.mu.Unlock()
		return time.Time{}, false, false
	}
	n := s.draw()
	for first := true; ; first = false {
		if s.rate == 0 {
			s.returned = append(s.returned, n)
			s.mu.Unlock()
			return time.Time{}, false, false
		}
		due, changed := s.due(n), s.changed
		s.mu.Unlock()
		wait := time.Until(due)
		if wait <= 0 {
			return due, first && wait < -punctual, true
		}
		if s.sleep(stay, wait, changed) {
			return due, false, true
		}
		s.mu.Lock()
		if stay.Err() != nil {
			s.returned = append(s.returned, n)
			s.mu.Unlock()
			return time.Time{}, false, false
		}
	}
}

// sleep reports whether all of d has passed, and neither stay nor the schedule
// changed.
func (s *schedule) sleep(stay context.Context, d time.Duration, changed chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stay.Done():
	case <-changed:
	}
	return false
}

// backlog returns how many arrivals are due and have no client.
func (s *schedule) backlog(now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rate == 0 {
		return 0
	}
	// Number 0 is due at the very beginning.
	due := int64(s.dueBy(now)) + 1
	waiting := max(due-s.drawn, 0)
	for _, n := range s.returned {
		if n < due {
			waiting++
		}
	}
	return waiting
}
