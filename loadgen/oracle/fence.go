package oracle

import "time"

// numberOf checks that the fence of a holder is larger than the fence before. It skips
// a holder whose lease is over: its fence may be old.
func (o *Oracle) numberOf(v *Occupancy) {
	s := v.section
	if !o.config.Numbered || !v.going() {
		return
	}
	if s.entered > 1 && v.who.Fence <= s.number {
		o.suspect(suspect{Evidence{
			Violation: NumberFell, Key: s.name, At: v.Began, First: Side{Fence: s.number}, Second: v.side(v.Began),
		}, Everybody, s.numberAt})
	}
	s.number, s.numberAt = v.who.Fence, v.Began
}

// Write records that a client writes to the protected resource, and reports whether the
// resource accepts the write. A polite client checks its lease first and does not write
// without one. Then write returns false and counts no violation.
func (o *Oracle) Write(v *Occupancy, polite bool, now time.Time) bool {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	valid := v.going()
	if polite && !valid {
		return false
	}
	if !valid {
		o.lateWork(v, now)
	}
	switch {
	case v.who.Shared:
	case v.who.Fence > 0 && v.who.Fence < s.fence:
		o.stale(v, FencedWrite, now)
		return false
	case !valid && s.entered > v.number:
		o.stale(v, WriteAccepted, now)
	}
	return true
}

func (o *Oracle) lateWork(v *Occupancy, now time.Time) {
	late := max(now.Sub(v.lease.Deadline()), 0)
	o.mu.Lock()
	o.found.LateWork.Count++
	o.found.LateWork.Total += late
	o.found.LateWork.Longest = max(o.found.LateWork.Longest, late)
	o.mu.Unlock()
	o.keep(Evidence{
		Violation: LateWork, Key: v.section.name, At: now, Length: late,
		First: v.side(now), Cause: v.blame(),
	})
}

// stale counts a write that comes after a later holder entered.
func (o *Oracle) stale(v *Occupancy, how Violation, now time.Time) {
	o.mu.Lock()
	if how == FencedWrite {
		o.found.Fenced++
	} else {
		o.found.AcceptedStaleWrites++
	}
	o.mu.Unlock()
	e := Evidence{Violation: how, Key: v.section.name, At: now, First: v.side(now), Cause: v.blame()}
	for _, other := range v.section.inside {
		if other.number > v.number {
			e.Second = other.side(now)
		}
	}
	o.keep(e)
}
