// Package oracle decides whether locks keep their promises. An [Oracle] watches the
// clients of a run and counts overlaps, stale writes, lost leases and stuck keys. A
// [History] keeps the requests of the clients and proves that the replies are
// linearizable.
package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
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

// Severity says what a violation means.
type Severity uint8

// Severities.
const (
	Broken   Severity = iota // a sound lock must prevent it
	Harmed                   // it has harmed the protected data
	Risky                    // it can harm the protected data; no lock can prevent it
	Harmless                 // a guard has done its work
)

// Kind describes a kind of violation. Thresholds, verdict, reports, events and the screen list
// the kinds from [Kinds].
type Kind struct {
	ID       Violation
	Severity Severity
	Word     string // for a column of the screen, at most 14 characters

	// One and Many are parts of a sentence about the violations of a run. {clients} stands for
	// those that must not be inside together, {n} for a number. Unexplained follows if the lock
	// is sound, and no fault explains them.
	One, Many, Unexplained string

	// Once and Often are sentences about one event and about several on the same key. They may
	// also have {pair}, {client}, {late} (the client, and why it is late), {key}, {fence}, {took}
	// and {longest}. They are empty if the sentence about another event says it.
	Once, Often string

	Suspect   string // what it is called while a fault may explain it; "" = none explains it
	Excusable bool   // those that a fault explains count, too, as excused
	Lasts     bool   // its tally has times

	Of func(*Violations) *Tally
}

// Sentence returns the part of a sentence about n violations.
func (k Kind) Sentence(n int64, clients string) string {
	text := k.Many
	if n == 1 {
		text = k.One
	}
	return strings.NewReplacer("{n}", humanize.Count(n), "{clients}", clients).Replace(text)
}

// rank returns the place of a violation in [Kinds].
func (v Violation) rank() int {
	return slices.IndexFunc(kinds, func(k Kind) bool { return k.ID == v })
}

// Kind returns the kind with this name, and whether there is one.
func (v Violation) Kind() (k Kind, known bool) {
	if i := v.rank(); i >= 0 {
		return kinds[i], true
	}
	return k, false
}

// Kinds returns all kinds of violations, the worst first. The caller must not change the result.
func Kinds() []Kind { return kinds }

var kinds = []Kind{{
	ID: Overlap, Word: "overlap", Suspect: "overlap", Excusable: true, Lasts: true,
	One: "{clients} held the lock at the same time", Many: "{clients} held the lock at the same time {n} times",
	Once: "{pair} held {key} at the same time, for {took}", Often: "{clients} held {key} at the same time {n} times, up to {longest}",
	Of: func(v *Violations) *Tally { return &v.Overlap },
}, {
	ID: ForeignUnlock, Word: "foreign unlock", Suspect: "foreign unlock",
	One: "one release removed the lock of another client", Many: "{n} releases removed the locks of other clients",
	Once: "{client} releases {key}, which was another client's by then", Often: "clients release {key} {n} times when it is another client's",
	Of: func(v *Violations) *Tally { return &v.ForeignUnlock },
}, {
	ID: StuckKey, Word: "stuck key", Excusable: true,
	One: "no client could acquire one key, although no client was inside", Many: "{n} times no client could acquire a key, although no client was inside",
	Unexplained: " and no fault explains it: the lock broke its promise",
	Once:        "{key} could not be acquired for {took}, though clients wait", Often: "{key} could not be acquired {n} times, up to {longest}",
	Of: func(v *Violations) *Tally { return &v.StuckKey },
}, {
	ID: Unnotified, Word: "unnotified", Suspect: "unnotified holder",
	One: "one lease ended without notice to its holder", Many: "{n} leases ended without notice to their holders",
	Once: "the lease of {client} on {key} ends without notice to {client}", Often: "{n} leases on {key} end without notice to their holders",
	Of: func(v *Violations) *Tally { return &v.Unnotified },
}, {
	ID: UnexplainedLoss, Word: "unexplained", Suspect: "lost lease",
	One: "one renewed lease was lost, and no fault explains the loss", Many: "{n} renewed leases were lost, and no fault explains the losses",
	Once: "{client} loses {key}, which is renewed, and no fault explains it", Often: "leases on {key} that are renewed are lost {n} times, and no fault explains it",
	Of: func(v *Violations) *Tally { return &v.UnexplainedLoss },
}, {
	ID: Overtaken, Word: "overtaken", Suspect: "overtaken client",
	One: "one client was served before another that was in the queue first", Many: "{n} times a client was served before another that was in the queue first",
	Once: "{client} waits for {key}, and clients that came later are served", Often: "clients that came later are served first on {key}, {n} times",
	Of: func(v *Violations) *Tally { return &v.Overtaken },
}, {
	ID: FenceOrder, Word: "fence order", Suspect: "fence out of order",
	One: "one fencing token was not larger than the previous one", Many: "{n} fencing tokens were not larger than the previous ones",
	Once: "the fencing token of {client} for {key}, {fence}, is not larger than the one before", Often: "fencing tokens for {key} are not larger than the one before, {n} times",
	Of: func(v *Violations) *Tally { return &v.FenceOrder },
}, {
	ID: StaleWriteAccepted, Severity: Harmed, Word: "stale accepted",
	One: "one stale write was accepted: the data is corrupt", Many: "{n} stale writes were accepted: the data is corrupt",
	Once:  "{late} writes to {key} over what others wrote since: no fencing check, the data is now corrupt",
	Often: "stale writes to {key} are accepted {n} times: no fencing check, the data is now corrupt",
	Of:    func(v *Violations) *Tally { return &v.StaleWriteAccepted },
}, {
	ID: WorkOverlap, Severity: Risky, Word: "work overlap", Lasts: true,
	One: "{clients} worked at the same time", Many: "{clients} worked at the same time {n} times",
	Once:  "{pair} work on {key} at the same time, for {took}",
	Often: "{clients} work on {key} at the same time, {n} times, up to {longest}",
	Of:    func(v *Violations) *Tally { return &v.WorkOverlap },
}, {
	ID: LateWork, Severity: Risky, Word: "late work", Lasts: true,
	One: "one client worked past its deadline", Many: "clients worked past their deadline {n} times",
	Of: func(v *Violations) *Tally { return &v.LateWork },
}, {
	ID: StaleWriteRefused, Severity: Harmless, Word: "stale refused",
	One: "one stale write was refused because of its fencing token", Many: "{n} stale writes were refused because of their fencing tokens",
	Once:  "{late} writes to {key}: refused, its fencing token {fence} is older than the newest",
	Often: "stale writes to {key} are refused {n} times",
	Of:    func(v *Violations) *Tally { return &v.StaleWriteRefused },
}}

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
