package contest

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is what clients do in a window: lock, hold, unlock, again and again.
type Work struct {
	Warm   time.Duration // before anything is counted
	Length time.Duration // of what is counted
	Cycles int64         // the window is over after so many, however long it takes; 0 = after Length
	Hold   time.Duration
}

// phase of a window.
type phase = int32

const (
	warming phase = iota
	counting
	over
)

// window is a time in which clients work.
type window struct {
	work  Work
	phase atomic.Int32
	left  atomic.Int64 // cycles yet to begin
	done  atomic.Int64 // cycles that ended in the phase

	waiting context.Context // ends with the window
	end     context.CancelFunc
}

// tally is what one client has done while it counted.
type tally struct {
	waits, took []time.Duration
	err         error
}

// measure lets the clients work, each on a goroutine of its own.
func measure(ctx context.Context, m meter, clients []Client, work Work) (Sample, error) {
	w := &window{work: work}
	w.waiting, w.end = context.WithCancel(ctx)
	defer w.end()
	w.left.Store(math.MaxInt64)
	if work.Cycles > 0 {
		w.left.Store(work.Cycles)
		w.phase.Store(counting)
	}
	before, err := m.read(ctx)
	if err != nil {
		return Sample{}, err
	}
	tallies := make([]tally, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { tallies[i] = w.run(ctx, c) })
	}
	if work.Cycles == 0 {
		before, err = w.pass(ctx, m)
	} else {
		group.Wait()
	}
	after, failed := m.read(ctx)
	w.phase.Store(over)
	w.end()
	group.Wait()
	sample := after.since(before)
	return sample, sample.add(tallies, err, failed)
}

// pass waits until the window has passed, and returns what the meters showed
// when the counting began.
func (w *window) pass(ctx context.Context, m meter) (reading, error) {
	w.spend(w.work.Warm)
	before, err := m.read(ctx)
	w.done.Store(0)
	w.phase.Store(counting)
	w.spend(w.work.Length)
	return before, err
}

// Nobody is warm, or can be judged, without a cycle. On a busy machine it may take
// this long.
const firstCycle = 10 * time.Second

// spend waits for some time, and until there was a cycle.
func (w *window) spend(d time.Duration) {
	time.Sleep(d)
	for limit := time.Now().Add(firstCycle); w.done.Load() == 0 && time.Now().Before(limit); {
		time.Sleep(d / 10)
	}
}

// run is one client's work. A wait that the end of the window cuts short counts
// with the time it had lasted: to leave out the longest waits would flatter
// whoever lets some starve.
func (w *window) run(ctx context.Context, c Client) (t tally) {
	for w.left.Add(-1) >= 0 && w.phase.Load() != over {
		began := time.Now()
		err := c.Lock(w.waiting)
		locked := time.Now()
		if w.waiting.Err() != nil {
			t.waits = append(t.waits, locked.Sub(began))
		}
		if err != nil {
			if w.waiting.Err() == nil {
				t.err = err
			}
			return t
		}
		if w.work.Hold > 0 {
			time.Sleep(w.work.Hold)
		}
		if err := c.Unlock(ctx); err != nil && w.waiting.Err() == nil {
			t.err = err
			return t
		}
		w.done.Add(1)
		if w.phase.Load() == counting {
			t.waits = append(t.waits, locked.Sub(began))
			t.took = append(t.took, time.Since(began))
		}
	}
	return t
}

// add sums up what the clients did. It returns the first of their errors, or of
// these.
func (s *Sample) add(tallies []tally, errs ...error) error {
	for _, t := range tallies {
		errs = append(errs, t.err)
		s.Waits = append(s.Waits, t.waits...)
		s.Took = append(s.Took, t.took...)
	}
	slices.Sort(s.Waits)
	slices.Sort(s.Took)
	s.Cycles = len(s.Took)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
