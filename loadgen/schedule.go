package loadgen

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// schedule says when clients arrive in the open model: an arrival is due when the
// rate, summed up over time, reaches its mark. The marks are 0, 1, 2 … or, for
// Poisson arrivals, random numbers whose distances are exponential. Clients draw
// marks in order and come when theirs is due, so nothing has to be awake in
// between, and a client that comes late knows when it should have come. All
// methods may be called from any goroutine.
type schedule struct {
	mu       sync.Mutex
	legs     []leg         // in the order of time; the last one is going on
	random   *rand.Rand    // of the distances; nil: all are 1
	ahead    []float64     // marks that nobody has drawn, in order
	last     float64       // the largest mark made so far
	returned []float64     // drawn by clients that left before they were served
	changed  chan struct{} // closed when the rate changes
}

// leg is a time with one rate.
type leg struct {
	since time.Time
	rate  float64 // a second; 0 = closed model: come whenever you like
	mark  float64 // reached at since
}

// arrival is one that a client comes for.
type arrival struct {
	due  time.Time
	late bool // it was due before any client came for it
	mark float64
}

// newSchedule returns one of evenly spaced arrivals, or with a source of chance one
// of Poisson arrivals.
func newSchedule(rate float64, now time.Time, random *rand.Rand) *schedule {
	s := &schedule{legs: []leg{{since: now, rate: rate}}, random: random, changed: make(chan struct{})}
	if random != nil {
		s.last = s.distance()
	}
	s.ahead = []float64{s.last}
	return s
}

// distance returns how far the next mark is from the one before.
func (s *schedule) distance() float64 {
	if s.random == nil {
		return 1
	}
	return s.random.ExpFloat64()
}

func (s *schedule) now() leg { return s.legs[len(s.legs)-1] }

// set changes the rate. Arrivals that are not due yet move.
func (s *schedule) set(rate float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rate == s.now().rate {
		return
	}
	s.legs = append(s.legs, leg{now, rate, s.reached(now)})
	close(s.changed)
	s.changed = make(chan struct{})
}

// reached returns the mark of a moment that is not over.
func (s *schedule) reached(now time.Time) float64 {
	l := s.now()
	return l.mark + now.Sub(l.since).Seconds()*l.rate
}

// due returns when a mark is, or was, reached.
func (s *schedule) due(mark float64) time.Time {
	i := len(s.legs) - 1
	for i > 0 && (mark < s.legs[i].mark || mark == s.legs[i].mark && s.legs[i-1].rate > 0) {
		i--
	}
	l := s.legs[i]
	if l.rate == 0 {
		return l.since
	}
	return l.since.Add(time.Duration((mark - l.mark) / l.rate * float64(time.Second)))
}

// draw returns the mark of the next arrival.
func (s *schedule) draw() float64 {
	if n := len(s.returned); n > 0 {
		first := slices.Index(s.returned, slices.Min(s.returned))
		mark := s.returned[first]
		s.returned = slices.Delete(s.returned, first, first+1)
		return mark
	}
	if len(s.ahead) == 0 {
		s.extend()
	}
	mark := s.ahead[0]
	s.ahead = s.ahead[1:]
	return mark
}

func (s *schedule) extend() {
	s.last += s.distance()
	s.ahead = append(s.ahead, s.last)
}

// giveBack returns an arrival for another client to come for.
func (s *schedule) giveBack(a arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = append(s.returned, a.mark)
}

// punctual is how late an arrival may be without being called late.
const punctual = time.Millisecond

// next waits until the next arrival that nobody else comes for is due, and returns
// it. Open is false, at once or after a change, if there is no schedule, and when
// stay ends.
func (s *schedule) next(stay context.Context) (a arrival, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed() && len(s.pending(time.Now())) == 0 {
		return arrival{}, false
	}
	mark := s.draw()
	for first := true; ; first = false {
		if stay.Err() != nil || s.closed() && s.reached(time.Now()) < mark {
			s.returned = append(s.returned, mark)
			return arrival{}, false
		}
		due, changed := s.due(mark), s.changed
		wait := time.Until(due)
		if wait <= 0 {
			return arrival{due, first && wait < -punctual, mark}, true
		}
		s.mu.Unlock()
		slept := s.sleep(stay, wait, changed)
		s.mu.Lock()
		if slept {
			return arrival{due, false, mark}, true
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

// backlog returns how many arrivals are due and have no client, and since when the
// first of them is: now if there is none.
func (s *schedule) backlog(now time.Time) (n int64, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks := s.pending(now)
	if len(marks) == 0 {
		return 0, now
	}
	return int64(len(marks)), s.due(slices.Min(marks))
}

// unserved returns when those arrivals were due that have no client at a moment.
func (s *schedule) unserved(now time.Time) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Time
	for _, mark := range s.pending(now) {
		all = append(all, s.due(mark))
	}
	return all
}

// closed reports whether there is no schedule now.
func (s *schedule) closed() bool { return s.now().rate == 0 }

// pending returns the marks that are reached at a moment and that nobody came for.
func (s *schedule) pending(now time.Time) []float64 {
	reached := s.reached(now)
	if s.closed() && len(s.legs) == 1 {
		return nil // there never was one
	}
	for s.last <= reached {
		s.extend()
	}
	marks := s.ahead
	if n, _ := slices.BinarySearch(marks, math.Nextafter(reached, math.Inf(1))); n < len(marks) {
		marks = marks[:n]
	}
	if len(s.returned) == 0 {
		return marks
	}
	marks = slices.Clone(marks)
	for _, mark := range s.returned {
		if mark <= reached {
			marks = append(marks, mark)
		}
	}
	return marks
}
