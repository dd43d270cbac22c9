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
	Overlap  string   // the sentence on overlaps
	Others   []string // the other sentences
	Missed   []string // missed thresholds with the measured values
	Expected bool     // the scenario showed what it is expected to show
	Gaps     []string // sentences on why the run shows less than it should
}

// Text returns all sentences.
func (v Verdict) Text() string { return strings.Join(append([]string{v.Overlap}, v.Others...), " ") }

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
	if o := m.Outage; o != (Outage{}) && !slices.ContainsFunc(s.Thresholds, func(t Threshold) bool { return strings.HasPrefix(t.Figure, "outage.") }) {
		v.Gaps = append(v.Gaps, o.String())
	}
	if s.Lock.Kind == Exec && s.Lock.Order && m.Acquired > 0 && m.Violations.Overtaken.Unknown {
		v.Gaps = append(v.Gaps, "The order of the clients is not judged: the protocol tells it only of clients that asked for a key 2 s apart, and no two such clients waited together.")
	}
	if n := m.Violations.Unjudged; 2*n > m.Acquired {
		v.Gaps = append(v.Gaps, fmt.Sprintf("The oracle judged only %s of %s: the other leases were over when the acquires returned.", humanize.Count(max(m.Acquired-n, 0)), humanize.Plural(m.Acquired, "hold")))
	}
	v.Overlap, v.Others = m.overlapSentence(s), m.sentences(s)
	return v
}

// missed returns the threshold and the measured value as text.
func (t Threshold) missed(m Metrics) string {
	return fmt.Sprintf("%s, but it is %s", t, t.Measured(m))
}

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

// sentences returns the sentences of the verdict that are not about overlaps.
func (m Metrics) sentences(s Scenario) (all []string) {
	if m.Acquired == 0 {
		return nil
	}
	for _, k := range oracle.Kinds() {
		t := k.Of(&m.Violations)
		switch {
		case k.ID == oracle.Overlap || k.ID == oracle.WorkOverlap:
		case s.Lock.Kind.Sound() && k.Excusable:
			all = append(all, sentence(k, t.Count-t.Excused, k.Unexplained), sentence(k, t.Excused, ""))
		default:
			all = append(all, sentence(k, t.Count, ""))
		}
	}
	all = slices.DeleteFunc(all, func(text string) bool { return text == "" })
	if n := m.Violations.Unjudged; n > 0 {
		all = append(all, fmt.Sprintf("The oracle did not judge %s: the lease was over when the acquire returned.", humanize.Plural(n, "hold")))
	}
	if excuses := m.Violations.Excuses(); excuses != "" {
		all = append(all, excuses)
	}
	if short := m.LateArrivals + m.Backlog; s.Rate > 0 && short*100 > m.Offered() {
		all = append(all, fmt.Sprintf("The generator had too few clients: %s of %s arrivals had to wait for one.", humanize.Count(short), humanize.Count(m.Offered())))
	}
	if m.Stall.Longest >= 50*time.Millisecond {
		all = append(all, fmt.Sprintf("The generator had too little CPU time: it was delayed by up to %s, %s in total.", humanize.Precise(m.Stall.Longest), humanize.Precise(m.Stall.Total)))
	}
	return all
}

// sentence returns a sentence about n violations with this end, "" if there are none.
func sentence(k oracle.Kind, n int64, end string) string {
	if n == 0 {
		return ""
	}
	return capital(k.Sentence(n, "") + end + ".")
}

// capital returns a text with a capital letter first.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// overlapSentence describes the overlaps.
func (m Metrics) overlapSentence(s Scenario) string {
	overlap, work := m.Violations.Overlap, m.Violations.WorkOverlap
	many := s.Lock.TooMany()
	if m.Oracles > 1 {
		many += " of one agent"
	}
	worked := fmt.Sprintf("%s worked at the same time (%s), with or without valid leases.", many, howOften(work))
	switch {
	case m.Acquired == 0:
		return fmt.Sprintf("No client acquired a lock in %s, so the run says nothing about its safety.", humanize.Plural(m.Arrivals, "attempt"))
	case overlap.Count > 0:
		text := fmt.Sprintf("%s held the lock at the same time (%s)%s.", capital(many), howOften(overlap), m.overlapCause(s))
		if work.Count > overlap.Count {
			text += " In all, " + worked
		}
		return text
	case work.Count > 0:
		return "No " + many + " had valid leases at once, but " + worked
	case m.Oracles > 1:
		return "No overlap was seen: each agent saw its own clients, the witness those with valid leases."
	}
	return "No " + many + " were inside at once."
}

// howOften describes the number and the longest time, like "once, for 138 ms".
func howOften(t oracle.Tally) string {
	if t.Count == 1 {
		return "once, for " + humanize.Duration(t.Longest)
	}
	return fmt.Sprintf("%s, for up to %s", humanize.Times(t.Count), humanize.Duration(t.Longest))
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
