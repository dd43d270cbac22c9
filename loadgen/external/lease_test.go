package external

import (
	"testing"
	"time"
)

// The deadline of a lease is early by the time that its reply may have been under way, at
// most 100 ms or 1/4 of the lease. The latest end is not.
func TestALeaseHasTheLeewayOfItsReply(t *testing.T) {
	const ms = time.Millisecond
	zero := time.Unix(100, 0)
	for _, c := range []struct {
		took, valid int // ms
		early       time.Duration
	}{
		{5, 1000, 5 * ms}, {99, 1000, 99 * ms}, {3000, 1000, 100 * ms}, {3000, 200, 50 * ms}, {10, 200, 10 * ms}, {10, 0, 0}, {10, -20, 0},
	} {
		valid := int64(c.valid)
		a := answer{Reply: Reply{Valid: &valid}, at: zero.Add(time.Duration(c.took) * ms)}
		l := newLease(nil, &call{sent: zero}, a)
		end := a.at.Add(time.Duration(c.valid) * ms)
		if got := end.Sub(l.Deadline()); got != c.early || !l.Latest().Equal(end) {
			t.Errorf("%d ms, valid for %d ms: early by %s, latest end %s", c.took, c.valid, got, l.Latest().Sub(a.at))
		}
		for _, later := range []time.Duration{-ms, ms} { // a renewal never shortens a lease
			deadline, latest := l.Deadline(), l.Latest()
			l.prolong(deadline.Add(later), latest.Add(later))
			if l.Deadline().Sub(deadline) != max(later, 0) || l.Latest().Sub(latest) != max(later, 0) {
				t.Errorf("prolonged by %s: %s, %s", later, l.Deadline().Sub(deadline), l.Latest().Sub(latest))
			}
		}
	}
}

// A renewal that the client reports has the same leeway: its report may have been under way.
func TestARenewalHasTheLeewayOfItsReport(t *testing.T) {
	now, valid := time.Now(), int64(1000)
	l := newLease(nil, &call{sent: now}, answer{Reply: Reply{Valid: new(int64)}, at: now})
	p := &Process{leases: map[string]*Lease{"t": l}}
	if _, err := p.event(Reply{Event: "renewed", Token: "t", Valid: &valid}, now); err != nil {
		t.Fatal(err)
	}
	if d, last := l.Deadline().Sub(now), l.Latest().Sub(now); d != 900*time.Millisecond || last != time.Second {
		t.Errorf("the deadline is %s, the latest end %s after the report", d, last)
	}
}
