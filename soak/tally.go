package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/loadgen"
)

// tally sums up the results of all rounds so far. Safe for concurrent use.
type tally struct {
	progress io.Writer // where violations are written, one per line

	mu                  sync.Mutex
	rounds              int
	holds, commands     int64
	faults              map[string]int
	overlaps, foreign   int64
	stale, fenced       int64
	lost, stalled       int // leases, to a fault and to a stall of the machine
	unexplained         int // leases that were lost and keys that were stuck without either
	failed, failedAlone int // requests, and those of them that failed without either
	proofs, unproved    int // histories that are those of a lock, and others
	leaks               int
	faultFree, ran      time.Duration // summed over all runs
	heap                []uint64      // after each round, in bytes
	goroutines          int           // more than before, at the worst
}

func newTally(detail io.Writer) *tally { return &tally{progress: detail, faults: make(map[string]int)} }

// proofTimeout bounds the proof of one history.
const proofTimeout = time.Minute

// add adds the results of a run that has ended.
func (t *tally) add(c *kindRun, began time.Time) {
	m, s := c.run.Metrics(), c.run.Scenario()
	proof := c.history.Prove(proofTimeout)
	a := c.log.summarize()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds += m.Acquired
	t.commands += m.Commands
	for kind, n := range c.log.faultCounts {
		if kind != stalled {
			t.faults[kind] += n
		}
	}
	t.overlaps += m.Overlap.Count
	t.foreign += m.ForeignUnlocks
	t.fenced += m.Fenced
	if s.Lock.Fence {
		t.stale += m.AcceptedStaleWrites
	}
	t.lost += a.lost
	t.stalled += a.stalled
	t.unexplained += len(a.unexplained)
	t.failed += a.failed
	t.failedAlone += a.unexplainedFailures
	t.faultFree += c.log.faultFree(began, began.Add(m.Elapsed))
	t.ran += m.Elapsed
	t.proofs++
	if !proof.Sound {
		t.unproved++
		t.report("%s: %s", s.Lock, proof)
	}
	for _, u := range a.unexplained {
		t.report("%s: without a fault, %s of %s after %s, on %s", s.Lock, u.event.Kind, u.event.Owner(), u.event.At.Sub(u.since), u.event.Key)
	}
	for _, e := range m.Evidence {
		if e.Violation == loadgen.Overlapped || e.Violation == loadgen.ForeignUnlock {
			t.report("%s: %+v", s.Lock, e)
		}
	}
}

func (t *tally) report(format string, args ...any) { fmt.Fprintf(t.progress, format+"\n", args...) }

// leakTimeout is how long connections and goroutines that end may still exist.
const leakTimeout = 10 * time.Second

// countLeftovers counts keys, connections and channels that are left on the servers
// after all clients have ended.
func (t *tally) countLeftovers(ctx context.Context, g *testbed) error {
	var left []string
	for limit := time.Now().Add(leakTimeout); ; sleep(ctx, 50*time.Millisecond) {
		var err error
		left, err = g.leftovers(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 || time.Now().After(limit) {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaks += len(left)
	for _, what := range left {
		t.report("left behind: %q", what)
	}
	return nil
}

// endRound ends a round: it counts the goroutines that are left over, and measures
// the memory that is still in use.
func (t *tally) endRound(before int) {
	more := runtime.NumGoroutine() - before
	for limit := time.Now().Add(leakTimeout); more > 0 && time.Now().Before(limit); more = runtime.NumGoroutine() - before {
		time.Sleep(20 * time.Millisecond)
	}
	for range 2 { // what a pool keeps goes with the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds++
	t.heap = append(t.heap, m.HeapAlloc)
	t.goroutines = max(t.goroutines, more)
	t.leaks += max(more, 0)
}

// allowedGrowth is how much more memory may be in use after the last round than ever
// in the first half: nothing that grows with the rounds fits in for long.
const allowedGrowth = 8 << 20

// memoryGrew reports whether memory has grown. t.mu must be held.
func (t *tally) memoryGrew() bool {
	first, last := t.memory()
	return last > first+allowedGrowth
}

// memory returns what was in use after any of the first half of the rounds, at
// most, and after the last. t.mu must be held.
func (t *tally) memory() (first, last uint64) {
	if len(t.heap) == 0 {
		return 0, 0
	}
	return slices.Max(t.heap[:(len(t.heap)+1)/2]), t.heap[len(t.heap)-1]
}

// sound reports whether nothing happened that must not happen.
func (t *tally) sound() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overlaps+t.foreign+t.stale == 0 && t.unexplained+t.unproved+t.leaks == 0 && !t.memoryGrew()
}

// String is the line of figures.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	total := 0
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(t.faults)) {
		total += t.faults[kind]
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, t.faults[kind]))
	}
	first, last := t.memory()
	free := 0.0
	if t.ran > 0 {
		free = 100 * t.faultFree.Seconds() / t.ran.Seconds()
	}
	return fmt.Sprintf("%d holds, %d commands, %d faults (%s), %d overlaps, %d foreign unlocks, %d stale writes accepted despite their number, %d refused, "+
		"%d leaks, lost leases: %d to a fault, %d to a stall of the machine, %d to nothing known (the servers were in order for %.0f%% of the time), "+
		"%d requests failed, %d of them without a fault, "+
		"%d of %d histories proved, memory %.1f MB at most in the first half and %.1f MB at the end, %d goroutines more than before",
		t.holds, t.commands, total, strings.Join(kinds, ", "), t.overlaps, t.foreign, t.stale, t.fenced,
		t.leaks, t.lost, t.stalled, t.unexplained, free, t.failed, t.failedAlone, t.proofs-t.unproved, t.proofs, megabytes(first), megabytes(last), max(t.goroutines, 0))
}

func megabytes(n uint64) float64 { return float64(n) / (1 << 20) }
