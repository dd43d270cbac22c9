package loadgen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/oracle"
)

// Verdict describes what a run showed.
type Verdict struct {
	Safe     bool     // clients acquired locks, and there was no violation of the promises of the kind
	Harmless bool     // nothing happened that can harm the protected data, also outside the promises of the kind
	Text     string   // one or more sentences
	Missed   []string // missed thresholds with the measured values
	Expected bool     // the scenario showed what it is expected to show
	Gaps     []string // sentences on why the run shows less than it should
}

// Verdict judges the metrics of a scenario.
func (m Metrics) Verdict(s Scenario) Verdict {
	unseen := Missed(s.Expect, m)
	v := Verdict{
		Safe:     m.Acquired > 0 && (!s.Lock.Kind.Sound() || m.Violations.Broken() == 0),
		Harmless: m.Violations.Harm() == 0,
		Expected: len(unseen) == 0,
	}
	for _, t := range Missed(s.Thresholds, m) {
		v.Missed = append(v.Missed, t.missed(m))
	}
	for _, t := range unseen {
		v.Gaps = append(v.Gaps, "The scene did not show its claim: "+t.missed(m)+".")
	}
	if o := m.Outage; o != (Outage{}) && !slices.ContainsFunc(s.Thresholds, Threshold.onOutage) {
		v.Gaps = append(v.Gaps, o.String())
	}
	if n := m.Violations.Unjudged; 2*n > m.Acquired {
		v.Gaps = append(v.Gaps, fmt.Sprintf("The oracle judged only %s of %s: the other leases were over when the acquires returned.", humanize.Count(max(m.Acquired-n, 0)), humanize.Plural(m.Acquired, "hold")))
	}
	v.Text = strings.Join(m.findings(s), " ")
	return v
}

// missed returns the threshold and the measured value as text.
func (t Threshold) missed(m Metrics) string {
	return fmt.Sprintf("%s, but it is %s", t, t.Measured(m))
}

// onOutage reports whether the threshold limits an outage.
func (t Threshold) onOutage() bool { return strings.HasPrefix(t.Metric, "outage.") }

// String describes the outage in sentences.
func (o Outage) String() string {
	var all []string
	if o.Total > 0 {
		all = append(all, fmt.Sprintf("A server did not answer for %s in all, %s at the longest.", humanize.Precise(o.Total), humanize.Precise(o.Longest)))
	}
	if o.Lost > 0 {
		all = append(all, fmt.Sprintf("A server restarted, or was replaced, %s.", humanize.Times(o.Lost)))
	}
	return strings.Join(all, " ")
}

// findings returns the sentences of the verdict.
func (m Metrics) findings(s Scenario) []string {
	if m.Acquired == 0 {
		return []string{fmt.Sprintf("No client acquired a lock in %s, so the run says nothing about its safety.", humanize.Plural(m.Arrivals, "attempt"))}
	}
	all := []string{m.overlapFinding(s)}
	add := func(n int64, one, many string) {
		switch {
		case n == 1:
			all = append(all, one)
		case n > 1:
			all = append(all, fmt.Sprintf(many, humanize.Count(n)))
		}
	}
	add(m.Violations.Unnotified, "One lease ended without notice to its holder.", "%s leases ended without notice to their holders.")
	add(m.Violations.UnexplainedLoss, "One renewed lease was lost, and no fault explains the loss.", "%s renewed leases were lost, and no fault explains the losses.")
	add(m.Violations.Overtaken, "One client was served before another that was in the queue first.", "%s times a client was served before another that was in the queue first.")
	add(m.Violations.FenceOrder, "One fencing token was not larger than the previous one.", "%s fencing tokens were not larger than the previous ones.")
	add(m.Violations.LateWork.Count, "One client worked past its deadline.", "Clients worked past their deadline %s times.")
	add(m.Violations.Fenced, "One stale write was refused because of its fencing token.", "%s stale writes were refused because of their fencing tokens.")
	add(m.Violations.AcceptedStaleWrites, "One stale write was accepted: the data is corrupt.", "%s stale writes were accepted: the data is corrupt.")
	add(m.Violations.ForeignUnlocks, "One release removed the lock of another client.", "%s releases removed the locks of other clients.")
	if s.Lock.Kind.Sound() {
		add(m.Violations.UnexplainedStuck, strings.TrimSuffix(stuckOnce, ".")+stuckForNothing, strings.TrimSuffix(stuckOften, ".")+stuckForNothing)
		add(m.Violations.Stuck-m.Violations.UnexplainedStuck, stuckOnce, stuckOften)
	} else {
		add(m.Violations.Stuck, stuckOnce, stuckOften)
	}
	add(m.Violations.Unjudged, "The oracle did not judge one hold: its lease was over when the acquire returned.", "The oracle did not judge %s holds: their leases were over when the acquires returned.")
	if excuses := m.Violations.Excuses(); excuses != "" {
		all = append(all, excuses)
	}
	if short := m.LateArrivals + m.Backlog; s.Rate > 0 && short*100 > m.Offered() {
		all = append(all, fmt.Sprintf("The generator had too few clients: %s of %s arrivals had to wait for one.", humanize.Count(short), humanize.Count(m.Offered())))
	}
	if m.Stall.Longest >= shortOfCPU {
		all = append(all, fmt.Sprintf("The generator had too little CPU time: it was delayed by up to %s, %s in total.", humanize.Precise(m.Stall.Longest), humanize.Precise(m.Stall.Total)))
	}
	return all
}

// Sentences about stuck keys.
const (
	stuckOnce  = "No client could acquire one key, although no client was inside."
	stuckOften = "%s times no client could acquire a key, although no client was inside."

	stuckForNothing = " and no fault explains it: the lock broke its promise."
)

// shortOfCPU is how late a timer of the generator may be without a remark.
const shortOfCPU = 50 * time.Millisecond

// Together returns the text of a verdict if no two clients, or no more than a semaphore
// admits, were inside at once, as far as the oracles saw.
func (m Metrics) Together(s Scenario) string {
	if m.Oracles < 2 {
		return "No " + s.Lock.TooMany() + " were inside at once."
	}
	return "No overlap was seen: each agent saw its own clients, the witness those with valid leases."
}

// overlapFinding describes the overlaps.
func (m Metrics) overlapFinding(s Scenario) string {
	many := s.Lock.TooMany()
	if m.Oracles > 1 {
		many += " of one agent"
	}
	work := fmt.Sprintf("%s worked at the same time (%s), with or without valid leases.", many, howOften(m.Violations.WorkOverlap))
	switch {
	case m.Violations.Overlap.Count == 0 && m.Violations.WorkOverlap.Count == 0:
		return m.Together(s)
	case m.Violations.Overlap.Count == 0:
		return "No " + many + " had valid leases at once, but " + work
	}
	text := fmt.Sprintf("%s held the lock at the same time (%s)%s.", strings.ToUpper(many[:1])+many[1:], howOften(m.Violations.Overlap), m.overlapCause(s))
	if m.Violations.WorkOverlap.Count > m.Violations.Overlap.Count {
		text += " In all, " + work
	}
	return text
}

// howOften describes the number and the longest time, like "once, for 138 ms".
func howOften(o oracle.Overlap) string {
	if o.Count == 1 {
		return "once, for " + humanize.Duration(o.Longest)
	}
	return fmt.Sprintf("%s, for up to %s", humanize.Times(o.Count), humanize.Duration(o.Longest))
}

// overlapCause describes the cause of the overlaps.
func (m Metrics) overlapCause(s Scenario) string {
	switch {
	case m.Violations.Overlap.Count == m.Violations.Overlap.Excused:
		return ", after a fault that no lock survives without fencing"
	case s.Lock.Kind.Sound():
		return ": the lock broke its promise"
	}
	return fmt.Sprintf(": this is the known flaw of %s", s.Lock.Kind)
}
