package oracle

import (
	"slices"
	"time"
)

// span is a time, longer than the patience, in which clients waited for a key that no
// client had.
type span struct{ from, to time.Time }

// unexplainedStuck counts the times in which keys were stuck, also those that are stuck
// now, for longer than the patience without a trouble that can keep clients from a free
// key. It leaves out keys that a client has forgotten to release.
func (o *Oracle) unexplainedStuck(now time.Time) (n int64) {
	for _, one := range o.stuckSpans(now) {
		if o.calm(one) > o.config.Patience {
			n++
		}
	}
	return n
}

// stuckSpans returns the times that unexplainedStuck judges.
func (o *Oracle) stuckSpans(now time.Time) []span {
	var all []span
	for s := range o.locked {
		if s.forgot {
			continue
		}
		all = append(all, s.stuck...)
		if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
			all = append(all, span{now.Add(-unheld), now})
		}
	}
	return all
}

// calm returns the longest time of a span without a trouble that can keep all clients from a
// free key. A crash cannot: what the client held is free after the TTL.
func (o *Oracle) calm(s span) time.Duration {
	o.mu.Lock()
	all := slices.Clone(o.troubles)
	o.mu.Unlock()
	slices.SortFunc(all, func(a, b Trouble) int { return a.From.Compare(b.From) })
	longest := time.Duration(0)
	for _, one := range all {
		if slices.Contains([]Cause{Crash, Flush, Steal}, one.Cause) || one.From.After(s.to) {
			continue
		}
		longest = max(longest, one.From.Sub(s.from))
		if one.lasting {
			return longest
		}
		if one.To.After(s.from) {
			s.from = one.To
		}
	}
	return max(longest, s.to.Sub(s.from))
}

// Forgotten records that a fault makes the client of a hold forget to release it, so that
// the keys stay locked.
func (o *Oracle) Forgotten(v *Hold) {
	for _, s := range v.locked {
		s.forgot = true
	}
}

// checkStuck counts a stuck key, if no client had the key for longer than patience.
func (o *Oracle) checkStuck(s *criticalSection, now time.Time) {
	if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
		s.stuck = append(s.stuck, span{now.Add(-unheld), now})
		o.keep(&o.found.StuckKey.Count, Evidence{Violation: StuckKey, Key: s.name, At: now, Length: unheld})
	}
}

// unheldFor returns for how long the key has had waiters and fewer holders than it
// admits.
func (o *Oracle) unheldFor(s *criticalSection, now time.Time) time.Duration {
	if s.waiting == 0 {
		return 0
	}
	free := s.wanted
	if s.freed.After(free) {
		free = s.freed
	}
	if o.config.Sets {
		if held := o.anyHold.lastHeld(now); held.After(free) {
			free = held
		}
	}
	if n := len(s.inside) - s.admits(); n >= 0 { // the key was free when it had fewer holds than it admits
		ends := make([]time.Time, len(s.inside))
		for i, v := range s.inside {
			ends[i] = v.end(now)
		}
		slices.SortFunc(ends, time.Time.Compare)
		if ends[n].After(free) {
			free = ends[n]
		}
	}
	return now.Sub(free)
}
