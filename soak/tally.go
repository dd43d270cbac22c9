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

// tally is what all rounds so far have shown. Safe for concurrent use.
type tally struct {
	detail io.Writer // where violations are told, a line each

	mu                sync.Mutex
	rounds            int
	holds, commands   int64
	faults            map[string]int
	overlaps, foreign int64
	stale, fenced     int64
	lost, stalled     int // leases, to a fault and to a stall of the machine
	unexplained       int // leases that were lost, and keys that were stuck, to neither
	failed, alone     int // requests, and those of them that failed without either
	proofs, unproved  int // histories that are those of a lock, and others
	leaks             int
	calm, played      time.Duration // of the courses, together
	heap              []uint64      // after each round, in bytes
	goroutines        int           // more than before, at the worst
}

func newTally(detail io.Writer) *tally { return &tally{detail: detail, faults: make(map[string]int)} }

// proveWithin bounds the proof of one history.
const proveWithin = time.Minute

// add adds what a course showed that is over.
func (t *tally) add(c *course, began time.Time) {
	m, s := c.run.Metrics(), c.run.Scenario()
	proof := c.history.Prove(proveWithin)
	a := c.ledger.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds += m.Acquired
	t.commands += m.Commands
	for kind, n := range c.ledger.struck {
		if kind != stalled {
			t.faults[kind] += n
		}
	}
	t.overlaps += m.Overlap.Count
	t.foreign += m.Foreign
	t.fenced += m.Fenced
	if s.Lock.Fence {
		t.stale += m.Corrupt
	}
	t.lost += a.lost
	t.stalled += a.stalled
	t.unexplained += len(a.unexplained)
	t.failed += a.failed
	t.alone += a.alone
	t.calm += c.ledger.calm(began, began.Add(m.Elapsed))
	t.played += m.Elapsed
	t.proofs++
	if !proof.Sound {
		t.unproved++
		t.say("%s: %s", s.Lock, proof)
	}
	for _, u := range a.unexplained {
		t.say("%s: without a fault, %s of %s after %s, on %s", s.Lock, u.event.Kind, u.event.Owner(), u.event.At.Sub(u.since), u.event.Key)
	}
	for _, e := range m.Evidence {
		if e.Violation == loadgen.Overlapped || e.Violation == loadgen.ForeignUnlock {
			t.say("%s: %+v", s.Lock, e)
		}
	}
}

func (t *tally) say(format string, args ...any) { fmt.Fprintf(t.detail, format+"\n", args...) }

// patience is how long what ends may take to be gone: the far end of a
// connection, a goroutine on its last lines.
const patience = 10 * time.Second

// inspect counts what is left on servers that nobody uses any more.
func (t *tally) inspect(ctx context.Context, g *ground) error {
	var left []string
	for limit := time.Now().Add(patience); ; sleep(ctx, 50*time.Millisecond) {
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
		t.say("left behind: %q", what)
	}
	return nil
}

// rest ends a round: it counts the goroutines that are left over, and measures
// the memory that is still in use.
func (t *tally) rest(before int) {
	more := runtime.NumGoroutine() - before
	for limit := time.Now().Add(patience); more > 0 && time.Now().Before(limit); more = runtime.NumGoroutine() - before {
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

// roomToGrow is how much more memory may be in use after the last round than ever
// in the first half: nothing that grows with the rounds fits in for long.
const roomToGrow = 8 << 20

// grown reports whether memory has grown. t.mu must be held.
func (t *tally) grown() bool {
	first, last := t.memory()
	return last > first+roomToGrow
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
	return t.overlaps+t.foreign+t.stale == 0 && t.unexplained+t.unproved+t.leaks == 0 && !t.grown()
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
	calm := 0.0
	if t.played > 0 {
		calm = 100 * t.calm.Seconds() / t.played.Seconds()
	}
	return fmt.Sprintf("%d holds, %d commands, %d faults (%s), %d overlaps, %d foreign unlocks, %d stale writes accepted despite their number, %d refused, "+
		"%d leaks, lost leases: %d to a fault, %d to a stall of the machine, %d to nothing known (the servers were in order for %.0f%% of the time), "+
		"%d requests failed, %d of them without a fault, "+
		"%d of %d histories proved, memory %.1f MB at most in the first half and %.1f MB at the end, %d goroutines more than before",
		t.holds, t.commands, total, strings.Join(kinds, ", "), t.overlaps, t.foreign, t.stale, t.fenced,
		t.leaks, t.lost, t.stalled, t.unexplained, calm, t.failed, t.alone, t.proofs-t.unproved, t.proofs, megabytes(first), megabytes(last), max(t.goroutines, 0))
}

func megabytes(n uint64) float64 { return float64(n) / (1 << 20) }
