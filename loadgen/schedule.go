package loadgen

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// schedule determines when clients arrive in the open model. The integral of the rate
// over time rises; an arrival is due when it reaches the mark of the arrival. Marks are
// 0, 1, 2 … or, for Poisson arrivals, random numbers with exponential distances.
// Clients draw marks in order and sleep until theirs is due. So the schedule needs no
// goroutine, and a late client knows when its arrival was due. All methods are safe for
// concurrent use.
type schedule struct {
	mu      sync.Mutex
	periods []ratePeriod  // in order of time; the last one is current
	random  *rand.Rand    // source of the distances; nil = every distance is 1
	ahead   []float64     // marks not drawn yet, or of clients that left before their arrival, in order
	last    float64       // the largest mark so far
	changed chan struct{} // closed when the rate changes
}

// ratePeriod is a period with one rate.
type ratePeriod struct {
	since time.Time
	rate  float64 // per second; 0 = closed model: clients arrive at any time
	mark  float64 // integral of the rate at since
}

// arrival is an arrival that one client serves.
type arrival struct {
	due  time.Time
	late bool // it was due before a client drew it
}

// newSchedule returns a schedule of even arrivals or, with a random source, of Poisson
// arrivals.
func newSchedule(rate float64, now time.Time, random *rand.Rand) *schedule {
	s := &schedule{periods: []ratePeriod{{since: now, rate: rate}}, random: random, changed: make(chan struct{})}
	if random != nil {
		s.last = s.distance()
	}
	s.ahead = []float64{s.last}
	return s
}

// distance returns the distance to the next mark.
func (s *schedule) distance() float64 {
	if s.random == nil {
		return 1
	}
	return s.random.ExpFloat64()
}

func (s *schedule) now() ratePeriod { return s.periods[len(s.periods)-1] }

// set changes the rate. This moves the arrivals that are not due yet.
func (s *schedule) set(rate float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rate == s.now().rate {
		return
	}
	s.periods = append(s.periods, ratePeriod{now, rate, s.reached(now)})
	close(s.changed)
	s.changed = make(chan struct{})
}

// reached returns the integral of the rate at now, which must be in the current period.
func (s *schedule) reached(now time.Time) float64 {
	l := s.now()
	return l.mark + now.Sub(l.since).Seconds()*l.rate
}

// due returns when the integral reaches a mark, also in the past.
func (s *schedule) due(mark float64) time.Time {
	i := len(s.periods) - 1
	for i > 0 && (mark < s.periods[i].mark || mark == s.periods[i].mark && s.periods[i-1].rate > 0) {
		i--
	}
	l := s.periods[i]
	if l.rate == 0 {
		return l.since
	}
	return l.since.Add(time.Duration((mark - l.mark) / l.rate * float64(time.Second)))
}

// draw returns the mark of the next arrival.
func (s *schedule) draw() float64 {
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

// next draws the next arrival, waits until it is due, and returns it. Open is false if
// the model is closed, if it becomes closed before the arrival is due, or if stay ends.
func (s *schedule) next(stay context.Context) (a arrival, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed() && len(s.pending(time.Now())) == 0 {
		return arrival{}, false
	}
	mark := s.draw()
	for first := true; ; first = false {
		if stay.Err() != nil || s.closed() && s.reached(time.Now()) < mark {
			at, _ := slices.BinarySearch(s.ahead, mark)
			s.ahead = slices.Insert(s.ahead, at, mark) // another client can draw it
			return arrival{}, false
		}
		due, changed := s.due(mark), s.changed
		wait := time.Until(due)
		if wait <= 0 {
			return arrival{due, first && wait < -time.Millisecond}, true
		}
		s.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-stay.Done():
		case <-changed:
		}
		s.mu.Lock()
	}
}

// backlog returns the number of due arrivals without a client, and when the oldest of
// them was due; now if there is none.
func (s *schedule) backlog(now time.Time) (n int64, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks := s.pending(now)
	if len(marks) == 0 {
		return 0, now
	}
	return int64(len(marks)), s.due(marks[0])
}

// unserved returns when the arrivals that have no client at now were due.
func (s *schedule) unserved(now time.Time) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Time
	for _, mark := range s.pending(now) {
		all = append(all, s.due(mark))
	}
	return all
}

// closed reports whether the current rate is 0.
func (s *schedule) closed() bool { return s.now().rate == 0 }

// pending returns the marks reached at now that no client has drawn.
func (s *schedule) pending(now time.Time) []float64 {
	reached := s.reached(now)
	if s.closed() && len(s.periods) == 1 {
		return nil // there was never a rate
	}
	for s.last <= reached {
		s.extend()
	}
	n, _ := slices.BinarySearch(s.ahead, math.Nextafter(reached, math.Inf(1)))
	return s.ahead[:n]
}

// timedStep is an action at a time of a scenario.
type timedStep struct {
	at time.Duration
	do func()
}

// steps returns the actions of the scenario in order of time. Over is called after its
// duration.
func (f *fleet) steps(over func()) []timedStep {
	s := f.scenario.Load()
	var all []timedStep
	at := time.Duration(0)
	for i, stage := range s.Stages {
		all = append(all, timedStep{at, func() { f.startStage(i, stage) }})
		at += stage.For
	}
	for i, fault := range s.Faults {
		fault.number = i + 1
		all = append(all, timedStep{fault.At, func() { f.inject(fault) }})
	}
	if s.Warmup > 0 {
		all = append(all, timedStep{s.Warmup, f.warm})
	}
	if s.Duration > 0 {
		all = append(all, timedStep{s.Duration, over})
	}
	slices.SortStableFunc(all, func(a, b timedStep) int { return int(a.at - b.at) })
	return all
}

// runSteps runs the steps of the scenario until stop.
func (f *fleet) runSteps(over func()) {
	began := time.Now()
	for _, s := range f.steps(over) {
		pause(f.ctx, time.Until(began.Add(s.at)))
		if f.ctx.Err() != nil {
			return
		}
		s.do()
	}
}

// startStage sets clients and rate to those of a stage.
func (f *fleet) startStage(i int, stage Stage) {
	s := *f.scenario.Load()
	if stage.Clients > 0 {
		s.Clients = stage.Clients
	}
	if stage.Rate > 0 {
		s.Rate = stage.Rate
	}
	f.events.note(Event{At: time.Now(), Kind: StageBegan, Text: fmt.Sprintf("stage %d: %d clients", i+1, s.Clients)})
	if err := f.apply(s); err != nil {
		f.recorder.setError(err)
	}
}
