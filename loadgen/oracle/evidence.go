// Package oracle decides whether locks keep their promises. An [Oracle] watches the
// clients of a run and counts overlaps, stale writes, lost leases and stuck keys. A
// [History] keeps the requests of the clients and proves that the replies are
// linearizable.
package oracle

import (
	"fmt"
	"slices"
	"time"
)

// Violation is a kind of violation.
type Violation string

// Kinds of violations.
const (
	Overlapped      Violation = "overlap"          // two holders, or more than the limit, inside within their leases
	WorkOverlapped  Violation = "work-overlap"     // that many clients worked at the same time; the lease of one was over
	Unnotified      Violation = "untold"           // a lease was over, but its holder was not notified
	UnexplainedLoss Violation = "unexplained-loss" // a renewed lease was lost without an explanation
	Overtaken       Violation = "overtaken"        // a fair lock served a later client
	FenceOrder      Violation = "fence-order"      // a fence was not larger than the fence before
	LateWork        Violation = "late-work"        // work after the own deadline
	FencedWrite     Violation = "fenced"           // the resource refused a stale write
	WriteAccepted   Violation = "corrupt"          // the resource accepted a stale write
	ForeignUnlock   Violation = "foreign-unlock"   // a release removed another client's lock
	StuckKey        Violation = "stuck"            // a key with waiters had no holder
)

// Kinds returns all kinds of violations, the worst first.
func Kinds() []Violation {
	return []Violation{
		Overlapped, ForeignUnlock, Unnotified, UnexplainedLoss, Overtaken, FenceOrder,
		WriteAccepted, FencedWrite, WorkOverlapped, LateWork, StuckKey,
	}
}

// Violations are the counts of violations, with evidence.
type Violations struct {
	Overlap         Overlap // of holds within their leases, which the lock must prevent
	WorkOverlap     Overlap // of work from enter to leave, also after the end of a lease, which fencing makes harmless
	Unnotified      int64   // leases that were over without the end of their context
	UnexplainedLoss int64   // renewed leases that were lost without an explanation
	Overtaken       int64   // acquires of a fair lock by a client that arrived when another was in the queue
	FenceOrder      int64   // fences that were not larger than the fence before
	Unjudged        int64   // holds whose overlaps and fences are not judged: their leases were over when the acquire returned

	LateWork            LateWorkStats
	Fenced              int64 // stale writes that the resource refused
	AcceptedStaleWrites int64 // stale writes that the resource accepted
	Stuck               int64 // times that a key with waiters had no holder for longer than the patience
	UnexplainedStuck    int64 // part of Stuck: no fault explains it; the oracle leaves it to its user, see [Oracle.StuckSpans]
	ForeignUnlocks      int64 // releases that removed another client's lock

	Evidence  []Evidence  // the worst kinds first
	Explained []Explained // the worst kinds first; excused overlaps are here, too
}

// Broken returns the number of violations that a sound lock must prevent.
func (v Violations) Broken() int64 {
	return v.Overlap.Count - v.Overlap.Excused + v.ForeignUnlocks + v.Unnotified + v.UnexplainedLoss + v.Overtaken + v.FenceOrder + v.UnexplainedStuck
}

// Harm returns the number of everything that can harm what a lock protects.
func (v Violations) Harm() int64 {
	return v.Broken() + v.Overlap.Excused + v.WorkOverlap.Count + v.AcceptedStaleWrites + v.LateWork.Count + v.Stuck - v.UnexplainedStuck
}

// Add adds the violations that another oracle has found.
func (v *Violations) Add(other Violations) {
	v.Overlap.add(other.Overlap)
	v.WorkOverlap.add(other.WorkOverlap)
	v.Unnotified += other.Unnotified
	v.UnexplainedLoss += other.UnexplainedLoss
	v.Overtaken += other.Overtaken
	v.FenceOrder += other.FenceOrder
	v.Unjudged += other.Unjudged
	v.LateWork.Count += other.LateWork.Count
	v.LateWork.Total += other.LateWork.Total
	v.LateWork.Longest = max(v.LateWork.Longest, other.LateWork.Longest)
	v.Fenced += other.Fenced
	v.AcceptedStaleWrites += other.AcceptedStaleWrites
	v.Stuck += other.Stuck
	v.UnexplainedStuck += other.UnexplainedStuck
	v.ForeignUnlocks += other.ForeignUnlocks
	v.Evidence = append(v.Evidence, other.Evidence...)
	v.addExplained(other.Explained)
	order := Kinds()
	slices.SortStableFunc(v.Evidence, func(a, b Evidence) int {
		return slices.Index(order, a.Violation) - slices.Index(order, b.Violation)
	})
}

func (o *Overlap) add(other Overlap) {
	o.Count += other.Count
	o.Excused += other.Excused
	o.Total += other.Total
	o.Longest = max(o.Longest, other.Longest)
}

// Overlap counts how often two holders, or more than the limit of a semaphore, were
// inside at the same time.
type Overlap struct {
	Count   int64         // acquires while another client, or as many as the limit, was inside the same critical section
	Excused int64         // part of Count: after a fault that no lock survives, because it deleted the key or the memory of the server
	Total   time.Duration // time with too many holders inside, summed over all holders that left during it
	Longest time.Duration // longest time with the same holders inside
}

// LateWorkStats describe work after the end of the lease.
type LateWorkStats struct {
	Count          int64
	Total, Longest time.Duration
}

// Evidence describes one violation. All clients run in one process, so times are exact.
type Evidence struct {
	Violation     Violation
	Key           string
	At            time.Time
	Length        time.Duration
	First, Second Side   // in order of entry; Second is empty for late-work and stuck
	Others        []Side // the other holders that were inside, if the lock admits several
	Cause         string // fault or flaw that caused it, "" if unknown
}

// Shift returns the evidence with all times later by d.
func (e Evidence) Shift(d time.Duration) Evidence {
	e.At = e.At.Add(d)
	e.First, e.Second = e.First.shift(d), e.Second.shift(d)
	e.Others = slices.Clone(e.Others)
	for i := range e.Others {
		e.Others[i] = e.Others[i].shift(d)
	}
	return e
}

func (s Side) shift(d time.Duration) Side {
	if s.Client > 0 {
		s.From, s.To, s.Deadline = s.From.Add(d), s.To.Add(d), s.Deadline.Add(d)
	}
	return s
}

// Side is one client of a violation.
type Side struct {
	Client   int // counted from 1; 0 = none
	Token    string
	Fence    int64
	Reader   bool
	From, To time.Time // in the critical section
	Inside   bool      // still inside at To, the time of the report
	Deadline time.Time // of the lease
}

// ClientLabel returns the name of a client, counted from 1, in reports and in tokens.
func ClientLabel(client int) string { return fmt.Sprintf("client-%d", client) }

// maxEvidence is how many violations of each kind are kept as evidence: the first ones.
// All are counted.
const maxEvidence = 20

// keep counts a violation in count, unless that is nil, and reports it. It stores the
// first violations of each kind.
func (o *Oracle) keep(count *int64, e Evidence) {
	o.mu.Lock()
	if count != nil {
		*count++
	}
	if len(o.evidence[e.Violation]) < maxEvidence {
		o.evidence[e.Violation] = append(o.evidence[e.Violation], e)
	}
	o.mu.Unlock()
	o.config.Report(e)
}
