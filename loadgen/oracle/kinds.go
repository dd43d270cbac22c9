package oracle

import (
	"slices"
	"strings"

	"locktop/internal/humanize"
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
