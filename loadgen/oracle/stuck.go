package oracle

import "time"

// StuckSpan is a time, longer than the patience, in which clients waited for a key that no
// client had.
type StuckSpan struct{ From, To time.Time }

// StuckSpans returns the times in which keys were stuck, also those that are stuck now. It
// leaves out keys that a client has forgotten to release.
func (o *Oracle) StuckSpans(now time.Time) []StuckSpan {
	var all []StuckSpan
	for s := range o.locked {
		if s.forgot {
			continue
		}
		all = append(all, s.stuck...)
		if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
			all = append(all, StuckSpan{now.Add(-unheld), now})
		}
	}
	return all
}

// Forgotten records that a fault makes the client of a hold forget to release it, so that
// the keys stay locked.
func (o *Oracle) Forgotten(v *Occupancy) {
	for ; v != nil; v = v.next {
		v.section.mu.Lock()
		v.section.forgot = true
		v.section.mu.Unlock()
	}
}
