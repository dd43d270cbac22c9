package loadgen

import (
	"slices"
	"time"
)

// calm returns the longest time between from and to without a disturbance that can keep all
// clients from a free key. A crash cannot: what the client held is free after the TTL.
func (d *disturbances) calm(from, to time.Time) time.Duration {
	d.mu.Lock()
	all := slices.Clone(d.all)
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b disturbance) int { return a.from.Compare(b.from) })
	longest := time.Duration(0)
	for _, one := range all {
		if slices.Contains([]FaultKind{Crash, Flush, ExternalDelete}, FaultKind(one.kind)) || one.from.After(to) {
			continue
		}
		longest = max(longest, one.from.Sub(from))
		if one.lasting {
			return longest
		}
		if one.to.After(from) {
			from = one.to
		}
	}
	return max(longest, to.Sub(from))
}
