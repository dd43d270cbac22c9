package loadgen

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is what a run showed, in words.
type Verdict struct {
	Safe     bool     // locks were taken, and nothing happened that the kind of lock rules out
	Text     string   // sentences
	Missed   []string // thresholds that do not hold, with what was measured
	Expected bool     // everything that the scenario expects to be seen was seen
}

// Verdict says in words what the figures mean for a scenario.
func (m Metrics) Verdict(s Scenario) Verdict {
	v := Verdict{
		Safe:     m.Acquired > 0 && (!s.Lock.Kind.Sound() || m.Overlap.Count == m.Overlap.Excused && m.Foreign == 0),
		Expected: len(Missed(s.Expect, m)) == 0,
	}
	for _, t := range Missed(s.Thresholds, m) {
		v.Missed = append(v.Missed, fmt.Sprintf("%s, but it is %s", t, t.Measured(m)))
	}
	v.Text = strings.Join(m.findings(s), " ")
	return v
}

// findings are the sentences of a verdict.
func (m Metrics) findings(s Scenario) []string {
	if m.Acquired == 0 {
		return []string{fmt.Sprintf("No client got a lock in %d attempts, so nothing is known of its safety.", m.Arrivals)}
	}
	var all []string
	add := func(n int64, one, many string) {
		switch {
		case n == 1:
			all = append(all, one)
		case n > 1:
			all = append(all, fmt.Sprintf(many, n))
		}
	}
	if m.Overlap.Count == 0 {
		all = append(all, "No two clients were inside at once.")
	} else {
		times := fmt.Sprintf("%d times", m.Overlap.Count)
		if m.Overlap.Count == 1 {
			times = "once"
		}
		all = append(all, fmt.Sprintf("Two clients were inside at once %s, for %s at the longest%s.",
			times, rounded(m.Overlap.Longest), m.blame(s)))
	}
	add(m.LateWork.Count, "One client worked past its deadline.", "Clients worked past their deadline %d times.")
	add(m.Fenced, "One stale write was refused by its fencing number.", "%d stale writes were refused by their fencing numbers.")
	add(m.Corrupt, "One stale write was accepted: the data is corrupt.", "%d stale writes were accepted: the data is corrupt.")
	add(m.Foreign, "One release removed somebody else's lock.", "%d releases removed somebody else's lock.")
	add(m.Stuck, "One key could not be taken by anybody.", "Keys could not be taken by anybody %d times.")
	return all
}

// blame names what brought the overlaps about, if it is no fault of the lock.
func (m Metrics) blame(s Scenario) string {
	switch {
	case m.Overlap.Count == m.Overlap.Excused:
		return ", after a fault that no lock survives without fencing"
	case s.Lock.Kind.Sound():
		return ": the lock broke its promise"
	}
	return fmt.Sprintf(": that is the flaw of %s", s.Lock.Kind)
}

// rounded is a time for people: three digits.
func rounded(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}
