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

	"locktop/loadgen/oracle"
)

// tally sums up the results of all rounds. Safe for concurrent use.
type tally struct {
	progress io.Writer // where violations are written, one per line

	mu              sync.Mutex
	rounds          int
	holds, commands int64
	faults          map[string]int
	violations      violations
	leases          lostLeases
	requests        failedRequests
	proofs          int // checked histories
	unproved        int // histories that are not linearizable
	leaks           int
	faultFree, ran  time.Duration // summed over all runs
	heap            []uint64      // bytes in use after each round
	goroutines      int           // largest number of leaked goroutines
}

// violations counts what a lock must prevent, and the stale writes that a fence refused.
type violations struct {
	overlaps, foreign, stale int64
	fenced                   int64
}

// lostLeases counts lost leases and stuck keys by their cause.
type lostLeases struct {
	toFault, toStall int // leases
	unexplained      int // leases and stuck keys
}

// failedRequests counts all failed requests, and those without a fault or a stall.
type failedRequests struct{ all, unexplained int }

func newTally(detail io.Writer) *tally { return &tally{progress: detail, faults: make(map[string]int)} }

// proofTimeout bounds the proof of one history.
const proofTimeout = time.Minute

// add adds the results of a run that has ended.
func (t *tally) add(c *kindRun, began time.Time) {
	m, s := c.run.Metrics(), c.run.Scenario()
	proof := c.history.Prove(proofTimeout)
	sum := c.log.summarize()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds += m.Acquired
	t.commands += m.Cost.Commands
	for kind, n := range c.log.faultCounts {
		if kind != stalled {
			t.faults[kind] += n
		}
	}
	t.violations.overlaps += m.Violations.Overlap.Count
	t.violations.foreign += m.Violations.ForeignUnlocks
	t.violations.fenced += m.Violations.Fenced
	if s.Lock.Fence {
		t.violations.stale += m.Violations.AcceptedStaleWrites
	}
	t.leases.toFault += sum.lost
	t.leases.toStall += sum.stalled
	t.leases.unexplained += len(sum.unexplained)
	t.requests.all += sum.failed
	t.requests.unexplained += sum.unexplainedFailures
	t.faultFree += c.log.faultFree(began, began.Add(m.Elapsed))
	t.ran += m.Elapsed
	t.proofs++
	if !proof.Sound {
		t.unproved++
		t.report("%s: %s", s.Lock, proof)
	}
	for _, u := range sum.unexplained {
		t.report("%s: without a fault, %s of %s after %s, on %s", s.Lock, u.event.Kind, u.event.Owner(), u.event.At.Sub(u.since), u.event.Key)
	}
	for _, e := range m.Violations.Evidence {
		if e.Violation == oracle.Overlapped || e.Violation == oracle.ForeignUnlock {
			t.report("%s: %+v", s.Lock, e)
		}
	}
}

func (t *tally) report(format string, args ...any) { fmt.Fprintf(t.progress, format+"\n", args...) }

// leakTimeout is how long connections and goroutines may take to end.
const leakTimeout = 10 * time.Second

// countLeftovers counts the keys, connections and channels on the servers after all
// clients have ended.
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

// endRound counts the leaked goroutines and measures the memory in use.
func (t *tally) endRound(before int) {
	more := runtime.NumGoroutine() - before
	for limit := time.Now().Add(leakTimeout); more > 0 && time.Now().Before(limit); more = runtime.NumGoroutine() - before {
		time.Sleep(20 * time.Millisecond)
	}
	for range 2 { // the second run frees what a sync.Pool keeps
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

// allowedGrowth is by how many bytes the memory in use after the last round may exceed
// the maximum of the first half. A leak in every round exceeds it soon.
const allowedGrowth = 8 << 20

// memoryGrew reports whether memory grew by more than allowedGrowth. t.mu must be held.
func (t *tally) memoryGrew() bool {
	first, last := t.memory()
	return last > first+allowedGrowth
}

// memory returns the bytes in use: the maximum over the first half of the rounds, and
// the value after the last. t.mu must be held.
func (t *tally) memory() (first, last uint64) {
	if len(t.heap) == 0 {
		return 0, 0
	}
	return slices.Max(t.heap[:(len(t.heap)+1)/2]), t.heap[len(t.heap)-1]
}

// sound reports whether there was no violation and no leak.
func (t *tally) sound() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.violations
	return v.overlaps+v.foreign+v.stale == 0 && t.leases.unexplained+t.unproved+t.leaks == 0 && !t.memoryGrew()
}

// String returns the summary line.
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
		"%d leaks, lost leases: %d to a fault, %d to a stall of the machine, %d without a known cause (the servers had no fault for %.0f%% of the time), "+
		"%d requests failed, %d of them without a fault, "+
		"%d of %d histories proved, memory %.1f MB at most in the first half and %.1f MB at the end, %d goroutines more than before",
		t.holds, t.commands, total, strings.Join(kinds, ", "), t.violations.overlaps, t.violations.foreign, t.violations.stale, t.violations.fenced,
		t.leaks, t.leases.toFault, t.leases.toStall, t.leases.unexplained, free, t.requests.all, t.requests.unexplained, t.proofs-t.unproved, t.proofs, megabytes(first), megabytes(last), max(t.goroutines, 0))
}

func megabytes(n uint64) float64 { return float64(n) / (1 << 20) }
