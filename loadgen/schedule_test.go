package loadgen

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// arrivalsOf returns the times at which the arrivals of a run were due.
func arrivalsOf(r *Run) (due []time.Duration) {
	m := r.Metrics()
	for _, e := range r.Events(0) {
		if e.Kind == Arrived {
			due = append(due, e.At.Sub(m.Began))
		}
	}
	return due
}

func TestALowRateIsSmooth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 50, Rate: 1, Hold: Const(0)})
		time.Sleep(30*time.Second + time.Millisecond)
		due := arrivalsOf(r)
		check.Require(t, len(due) == 31, "%d arrivals in 30 s at 1/s", len(due))
		for i, at := range due {
			check.Equal(t, at, time.Duration(i)*time.Second, "arrival %d", i)
		}
		m := r.Metrics()
		check.True(t, m.LateArrivals == 0 && m.Backlog == 0 && m.Acquired == 31, "got %+v", m)
	})
}

func TestANewRateMovesTheArrivalsThatAreNotDueYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{
			Clients: 5, Keys: Keys{N: 100}, Rate: 0.001, Hold: Const(0),
			Stages: []Stage{{For: 10 * time.Second}, {For: 10 * time.Second, Rate: 2}, {For: 10 * time.Second, Rate: 10}},
		})
		<-r.Done()
		m := r.Metrics()
		// One arrival at the beginning, and then 20 and 100 in ten seconds.
		check.True(t, m.Arrivals >= 119 && m.Arrivals <= 122 && m.Elapsed == 30*time.Second, "%d arrivals in %s", m.Arrivals, m.Elapsed)
		count := map[int]int{}
		for _, at := range arrivalsOf(r) {
			count[int(at/(10*time.Second))]++
		}
		check.True(t, count[0] == 1 && count[1] >= 19 && count[1] <= 21 && count[2] >= 99 && count[2] <= 101, "by ten seconds: %v", count)
	})
}

// One client, 3 s of work, one arrival per second: the second arrival waits 2 s for a client, the third 4 s.
func TestALateArrivalIsTimedFromWhenItWasDue(t *testing.T) {
	m := after(t, Scenario{Clients: 1, Keys: Keys{N: 1}, Rate: 1, Hold: Const(3 * time.Second)}, 7*time.Second)[0]
	check.True(t, m.Acquired == 3 && m.LateArrivals == 2 && m.Backlog == 5,
		"%d acquired, %d late, %d in the backlog", m.Acquired, m.LateArrivals, m.Backlog)
	check.Between(t, m.Latency.Wait.Max, 4*time.Second, 4100*time.Millisecond, "longest wait")
}

func TestAnArrivalWhoseClientLeavesIsTakenByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, time.Now(), nil)
		began := time.Now()
		s.next(t.Context()) // draws arrival 0, which is due at once
		for n := range 3 {  // the last one leaves first
			stay, leave := context.WithTimeout(t.Context(), time.Duration(3-n)*time.Millisecond)
			defer leave()
			go s.next(stay)
			synctest.Wait()
		}
		time.Sleep(5 * time.Millisecond)
		a, open := s.next(t.Context())
		check.True(t, open && !a.late && a.due.Equal(began.Add(time.Second)),
			"due %s, late %t, open %t: the number of the one that left is lost", a.due.Sub(began), a.late, open)
	})
}

func TestWithoutARateClientsArriveAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(0, time.Now(), nil)
		_, open := s.next(t.Context())
		check.False(t, open, "there is a schedule")
		s.set(0.001, time.Now())
		s.next(t.Context())
		done := make(chan bool)
		go func() {
			_, open := s.next(t.Context())
			done <- open
		}()
		synctest.Wait()
		s.set(0, time.Now())
		check.False(t, <-done, "a client still waits for an arrival when the schedule ends")
	})
}

func TestPoissonArrivalsComeAtTheRateAndIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := arrivalsOf(ended(newRun(Servers{Redis: piped(t)}, Scenario{
			Clients: 5, Keys: Keys{N: 1000}, Rate: 20, Arrivals: Poisson, Seed: 7, Hold: Const(0), Duration: 100 * time.Second,
		}, openNoNX))(t))
		// 2000 are expected, ± 45 with 68% confidence.
		check.Between(t, len(due), 1850, 2150, "arrivals in 100 s at 20/s")
		slices.Sort(due)
		var sum, squares float64
		for i := 1; i < len(due); i++ {
			gap := (due[i] - due[i-1]).Seconds()
			sum += gap
			squares += gap * gap
		}
		n := float64(len(due) - 1)
		mean := sum / n
		// The standard deviation of exponential gaps equals their mean; that of even gaps is 0.
		check.Between(t, math.Sqrt(squares/n-mean*mean)/mean, 0.9, 1.1, "deviation of gaps of %.1f ms on average", 1000*mean)
	})
}

func TestABacklogKeepsItsTimesWhenTheRateChanges(t *testing.T) {
	began := time.Unix(0, 0)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	s := newSchedule(10, began, nil)
	s.set(1, at(1))
	s.set(0, at(5.5))
	n, oldest := s.backlog(at(100))
	check.True(t, n == 15 && oldest.Equal(began), "%d in the backlog since %s, want 15 since the beginning", n, oldest.Sub(began))
	due := s.unserved(at(100))
	for i, want := range []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 3, 4, 5} {
		if i >= len(due) || due[i].Sub(at(want)).Abs() > time.Microsecond {
			t.Errorf("arrival %d: %v", i, due)
			break
		}
	}
}
