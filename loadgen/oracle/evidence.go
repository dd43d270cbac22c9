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

// Violation is the name of a kind of violation.
type Violation string

// Kinds of violations.
const (
	Overlap            Violation = "overlap"              // two holders, or more than the limit, inside within their leases
	WorkOverlap        Violation = "work_overlap"         // that many clients worked at the same time; the lease of one was over
	Unnotified         Violation = "unnotified"           // a lease was over, but its holder was not notified
	UnexplainedLoss    Violation = "unexplained_loss"     // a renewed lease was lost without an explanation
	Overtaken          Violation = "overtaken"            // a fair lock served a later client
	FenceOrder         Violation = "fence_order"          // a fence was not larger than the fence before
	LateWork           Violation = "late_work"            // work after the own deadline
	StaleWriteRefused  Violation = "stale_write_refused"  // the resource refused a stale write
	StaleWriteAccepted Violation = "stale_write_accepted" // the resource accepted a stale write
	ForeignUnlock      Violation = "foreign_unlock"       // a release removed another client's lock
	StuckKey           Violation = "stuck_key"            // a key with waiters had no holder for longer than the patience
)

// Violations are the counts of violations, with evidence.
type Violations struct {
	Overlap, WorkOverlap, Unnotified, UnexplainedLoss, Overtaken, FenceOrder, LateWork,
	StaleWriteRefused, StaleWriteAccepted, ForeignUnlock, StuckKey Tally

	Unjudged int64 // holds whose overlaps and fences are not judged: their leases were over when the acquire returned

	Evidence  []Evidence  // the worst kinds first
	Explained []Explained // the worst kinds first; excused overlaps are here, too
}

// Tally counts the violations of one kind.
type Tally struct {
	Count   int64
	Excused int64         // part of Count of an excusable kind: a fault explains it
	Total   time.Duration // of a kind that lasts; overlaps: summed over all holders that left during them
	Longest time.Duration
	Unknown bool // the oracle cannot see them: Count says nothing
}

func (t *Tally) add(other Tally) {
	*t = Tally{t.Count + other.Count, t.Excused + other.Excused, t.Total + other.Total, max(t.Longest, other.Longest), t.Unknown || other.Unknown}
}

// lasted adds a time.
func (t *Tally) lasted(d time.Duration) { t.Total, t.Longest = t.Total+d, max(t.Longest, d) }

// Broken returns the number of violations that a sound lock must prevent.
func (v Violations) Broken() (n int64) {
	for _, k := range kinds {
		if t := k.Of(&v); k.Severity == Broken {
			n += t.Count - t.Excused
		}
	}
	return n
}

// Harm returns the number of everything that can harm what a lock protects.
func (v Violations) Harm() (n int64) {
	for _, k := range kinds {
		if k.Severity != Harmless {
			n += k.Of(&v).Count
		}
	}
	return n
}

// Add adds the violations that another oracle has found.
func (v *Violations) Add(other Violations) {
	for _, k := range Kinds() {
		k.Of(v).add(*k.Of(&other))
	}
	v.Unjudged += other.Unjudged
	v.Evidence = append(v.Evidence, other.Evidence...)
	v.addExplained(other.Explained)
	slices.SortStableFunc(v.Evidence, func(a, b Evidence) int { return a.Violation.rank() - b.Violation.rank() })
}

// Evidence describes one violation. All clients run in one process, so times are exact.
type Evidence struct {
	Violation     Violation
	Key           string
	At            time.Time
	Length        time.Duration
	First, Second Side   // in order of entry; Second is empty for late_work and stuck_key
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

// keep counts a violation, unless it is an overlap, which is counted when it begins, and reports it.
// It stores the first violations of each kind.
func (o *Oracle) keep(e Evidence) {
	o.count(func(found *Violations) {
		if k, _ := e.Violation.Kind(); k.ID != Overlap && k.ID != WorkOverlap {
			k.Of(found).Count++
		}
		if len(o.evidence[e.Violation]) < maxEvidence {
			o.evidence[e.Violation] = append(o.evidence[e.Violation], e)
		}
	})
	if o.config.Report != nil {
		o.config.Report(e)
	}
}

// count changes what is found.
func (o *Oracle) count(change func(*Violations)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.found)
}
