package oracle

import (
	"time"
)

// checkFence checks that the fence of a holder is larger than the fence before. It skips
// a holder whose lease is over: its fence may be old. Holders that are inside together
// have no order.
func (o *Oracle) checkFence(v *Hold) {
	s := v.section
	if !o.config.Numbered || s.admits() > 1 || !v.valid() {
		return
	}
	if s.entered > 1 && v.Fence <= s.number {
		o.suspect(suspect{count: &o.found.FenceOrder.Count, client: Everybody, keys: []int{s.index}, since: earlier(s.numberSince, v.since), evidence: &Evidence{
			Violation: FenceOrder, Key: s.name, At: v.Began, First: Side{Fence: s.number}, Second: v.side(v.Began),
		}})
	}
	s.number, s.numberSince = v.Fence, v.since
}

// Write records that a client writes to the protected resources of its keys, and reports
// whether they accept the write. A polite client checks its lease first and does not
// write without one. Then write returns false and counts no violation.
func (o *Oracle) Write(v *Hold, polite bool, now time.Time) (accepted bool) {
	if polite && !v.valid() {
		return false
	}
	over := v.over(now)
	if over {
		o.lateWork(v, now)
	}
	accepted = true
	for v, s := range v.locked {
		switch {
		case v.Shared:
		case v.Fence > 0 && v.Fence < s.fence && s.admits() == 1:
			o.stale(v, StaleWriteRefused, &o.found.StaleWriteRefused.Count, now)
			accepted = false
		case over && (s.admits() > 1 && len(s.inside) > s.admits() || s.admits() == 1 && s.entered > v.number): // another client has entered in its place
			o.stale(v, StaleWriteAccepted, &o.found.StaleWriteAccepted.Count, now)
		}
	}
	return accepted
}

func (o *Oracle) lateWork(v *Hold, now time.Time) {
	v.section.mu.Lock()
	defer v.section.mu.Unlock()
	late := now.Sub(v.latest(now))
	o.mu.Lock()
	o.found.LateWork.lasted(late)
	o.mu.Unlock()
	o.keep(&o.found.LateWork.Count, Evidence{
		Violation: LateWork, Key: v.section.name, At: now, Length: late,
		First: v.side(now), Cause: v.knownCause(),
	})
}

// stale counts a write that comes after a later holder entered.
func (o *Oracle) stale(v *Hold, how Violation, count *int64, now time.Time) {
	e := Evidence{Violation: how, Key: v.section.name, At: now, First: v.side(now), Cause: v.knownCause()}
	for _, other := range v.section.inside {
		if other.number > v.number {
			e.Second = other.side(now)
		}
	}
	o.keep(count, e)
}
