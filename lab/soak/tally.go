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
	"locktop/loadgen/oracle"
)

// tally sums up the results of all rounds. Safe for concurrent use.
type tally struct {
	progress io.Writer // where violations are written, one per line

	mu              sync.Mutex
	holds, commands int64
	failed          int64 // requests
	faults          map[loadgen.FaultKind]int
	violations      oracle.Violations // without evidence
	stale           int64             // writes that were accepted despite their fence
	proofs          int               // checked histories
	unproved        int               // histories that are not linearizable
	leaks           int
	heap            []uint64 // bytes in use after each round
	goroutines      int      // largest number of leaked goroutines
}

func newTally(detail io.Writer) *tally {
	return &tally{progress: detail, faults: make(map[loadgen.FaultKind]int)}
}

// add adds the results of a run that has ended.
func (t *tally) add(l loadgen.Lock, m loadgen.Metrics, proof oracle.Proof) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds += m.Acquired
	t.commands += m.Cost.Commands
	t.failed += m.Errors + m.Unconfirmed
	for _, f := range m.Faults {
		t.faults[f.Fault.Kind] += f.Struck
	}
	if l.Fence {
		t.stale += m.Violations.StaleWriteAccepted.Count
	}
	t.proofs++
	if !proof.Sound {
		t.unproved++
		t.report("%s: %s", l, proof)
	}
	if n := m.Violations.StuckKey.Count - m.Violations.StuckKey.Excused; n > 0 {
		t.report("%s: %d keys stuck without a fault", l, n)
	}
	for _, e := range m.Violations.Evidence {
		switch e.Violation {
		case oracle.WorkOverlap, oracle.LateWork, oracle.StaleWriteRefused, oracle.StaleWriteAccepted, oracle.StuckKey: // no lock prevents these, or a fault may explain them
		default:
			t.report("%s: %+v", l, e)
		}
	}
	t.violations.Add(m.Violations)
	t.violations.Evidence = nil
}

func (t *tally) report(format string, args ...any) { fmt.Fprintf(t.progress, format+"\n", args...) }

// leakTimeout is how long connections and goroutines may take to end.
const leakTimeout = 10 * time.Second

// countLeftovers counts the keys, connections and channels on the servers after all
// clients have ended.
func (t *tally) countLeftovers(ctx context.Context, g *testbed) error {
	var left []string
	for limit := time.Now().Add(leakTimeout); ; time.Sleep(50 * time.Millisecond) {
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
	t.heap = append(t.heap, m.HeapAlloc)
	t.goroutines = max(t.goroutines, more)
	t.leaks += max(more, 0)
}

// allowedGrowth is by how many bytes the memory in use after the last round may exceed
// the maximum of the first half. A leak in every round exceeds it soon.
const allowedGrowth = 8 << 20

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
	first, last := t.memory()
	broken := t.violations.Broken() + t.violations.Overlap.Excused - t.violations.Overtaken.Count // a client that recovers from a fault joins the queue late
	return broken+t.stale == 0 && t.unproved+t.leaks == 0 && last <= first+allowedGrowth
}

// lost counts the renewed leases that were lost, by the reason.
func (t *tally) lost() (toFault, toMachine int64) {
	for _, e := range t.violations.Explained {
		switch {
		case e.Violation != oracle.UnexplainedLoss:
		case slices.Contains([]oracle.Cause{oracle.Stalled, oracle.Unanswered, oracle.Restarted}, e.Cause):
			toMachine += e.Count
		default:
			toFault += e.Count
		}
	}
	return toFault, toMachine
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
	v := t.violations
	toFault, toMachine := t.lost()
	first, last := t.memory()
	return fmt.Sprintf("%d holds, %d commands, %d faults (%s), %d overlaps, %d foreign unlocks, %d stale writes accepted despite their number, %d refused, "+
		"%d leaks, lost leases: %d to a fault, %d to a stall of the machine, %d without a known cause, %d keys stuck without a fault, %d holders not notified, %d fences out of order, %d clients overtaken, "+
		"%d requests failed, %d of %d histories proved, memory %.1f MB at most in the first half and %.1f MB at the end, %d goroutines more than before",
		t.holds, t.commands, total, strings.Join(kinds, ", "), v.Overlap.Count, v.ForeignUnlock.Count, t.stale, v.StaleWriteRefused.Count,
		t.leaks, toFault, toMachine, v.UnexplainedLoss.Count, v.StuckKey.Count-v.StuckKey.Excused, v.Unnotified.Count, v.FenceOrder.Count, v.Overtaken.Count,
		t.failed, t.proofs-t.unproved, t.proofs, megabytes(first), megabytes(last), max(t.goroutines, 0))
}

func megabytes(n uint64) float64 { return float64(n) / (1 << 20) }
