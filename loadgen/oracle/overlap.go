package oracle

import (
	"slices"
	"time"
)

// countWorkOverlap counts a hold that begins while another is inside, also after the end
// of a lease.
func (o *Oracle) countWorkOverlap(v *Occupancy) {
	i := slices.IndexFunc(v.section.inside, v.conflicts)
	if i < 0 {
		return
	}
	if v.overlapped == nil {
		v.overlapped = v.section.inside[i]
	}
	o.mu.Lock()
	o.found.WorkOverlap.Count++
	o.mu.Unlock()
}

// excludes reports whether v must not enter while other, which entered earlier, is
// inside.
func (v *Occupancy) excludes(other *Occupancy) bool { return v.conflicts(other) && other.valid() }

// conflicts reports whether v and other must not work at the same time.
func (v *Occupancy) conflicts(other *Occupancy) bool {
	return !(v.participant.Shared && other.participant.Shared)
}

func inOrder(a, b *Occupancy) (first, second *Occupancy) {
	if b.number < a.number {
		return b, a
	}
	return a, b
}

// causeOf names the known cause why second entered while first was inside, "" if there
// is none. Wiped reports whether the fault deleted the key, so that no lock could have
// prevented it.
func (s *criticalSection) causeOf(first, second *Occupancy, all keyLoss) (cause string, wiped bool) {
	for _, w := range []keyLoss{s.wiped, all} {
		if w.fault != "" && !w.at.Before(first.Began) && w.at.Before(second.Began) {
			return w.fault, true
		}
	}
	for _, v := range []*Occupancy{first, second} {
		if cause := v.knownCause(); cause != "" {
			return cause, false
		}
	}
	return "", false
}

// knownCause names the fault and the flaw of a holder. section.mu must be held.
func (v *Occupancy) knownCause() string {
	switch {
	case v.fault != "" && v.participant.Flaw != "":
		return v.fault + ", " + v.participant.Flaw
	case v.fault != "":
		return v.fault
	}
	return v.participant.Flaw
}

// countOverlap counts an overlap of a hold with a later one. section.mu must be held.
func (o *Oracle) countOverlap(first, second *Occupancy) {
	second.granted, second.overlapped = true, first
	_, excused := second.section.causeOf(first, second, o.wipedAt())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found.Overlap.Count++
	if excused {
		o.found.Overlap.Excused++
	}
}

// pairEnded reports two holds that were inside at the same time, when the first of them
// leaves. It reports each counted pair once.
func (o *Oracle) pairEnded(first, second *Occupancy, now time.Time) {
	if second.reported {
		return
	}
	second.reported = true
	cause, _ := first.section.causeOf(first, second, o.wipedAt())
	e := Evidence{
		Violation: WorkOverlapped, Key: first.section.name, At: second.Began, Length: now.Sub(second.Began),
		First: first.side(now), Second: second.side(now), Cause: cause,
	}
	if second.granted {
		e.Violation, e.Length = Overlapped, max(earlier(first.end(now), second.end(now)).Sub(second.Began), 0)
	}
	o.keep(nil, e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// longestOverlap returns the longest time for which v and another hold were inside
// together, and that hold. The others are in order of entry. It stops at the first one
// that v excludes and whose lease is valid: later ones were inside together with v for
// a shorter time.
func (v *Occupancy) longestOverlap(others []*Occupancy, now time.Time) (time.Duration, *Occupancy) {
	var longest time.Duration
	var with *Occupancy
	end := v.end(now)
	for _, other := range others {
		if v.participant.Shared && other.participant.Shared {
			continue
		}
		together := earlier(end, other.end(now))
		began := v.Began
		if other.Began.After(began) {
			began = other.Began
		}
		if d := together.Sub(began); d > longest {
			longest, with = d, other
		}
		if other.valid() {
			break
		}
	}
	return longest, with
}

// Unlocked records a successful release that the client decided on at decided. A holder
// that entered before that and is still inside has lost its lock to this release.
func (o *Oracle) Unlocked(v *Occupancy, decided, now time.Time) {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.inside {
		if other.number < v.number || !other.Began.Before(decided) || !v.excludes(other) {
			continue
		}
		o.keep(&o.found.ForeignUnlocks, Evidence{
			Violation: ForeignUnlock, Key: s.name, At: now,
			First: v.side(now), Second: other.side(now), Cause: v.knownCause(),
		})
		return
	}
}
