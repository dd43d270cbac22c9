package external

import (
	"testing"
	"time"

	"locktop/internal/check"
)

// A reply may have been under way for as long as its request took, but for no longer than
// the leeway: a lease never ends later than for its client. The latest end has no leeway, and a
// renewal never shortens a lease.
func TestTheEndOfALease(t *testing.T) {
	began := time.Now()
	for name, c := range map[string]struct {
		leeway, took, valid, want time.Duration // want: from the reply on
	}{
		"at once":              {0, 0, 2 * time.Second, 2 * time.Second},
		"soon":                 {0, 50 * time.Millisecond, 2 * time.Second, 1950 * time.Millisecond},
		"after a wait":         {0, time.Minute, 2 * time.Second, 1900 * time.Millisecond},
		"a short lease":        {0, time.Minute, 200 * time.Millisecond, 150 * time.Millisecond},
		"over":                 {0, time.Minute, -time.Second, -time.Second},
		"another leeway":       {250 * time.Millisecond, time.Minute, 2 * time.Second, 1750 * time.Millisecond},
		"another leeway, soon": {250 * time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, 290 * time.Millisecond},
	} {
		p := &Process{options: Options{Leeway: c.leeway}, leases: make(map[string][]*Lease)}
		valid, at := c.valid.Milliseconds(), began.Add(c.took)
		l := newLease(p, &call{sent: began}, answer{Reply: Reply{Token: "a", Valid: &valid}, at: at})
		if got, latest := l.Deadline().Sub(at), l.Latest().Sub(at); got != c.want || latest != c.valid {
			t.Errorf("%s: the lease ends %s after the reply, at the latest %s; not %s and %s", name, got, latest, c.want, c.valid)
		}

		p.leases["a"] = []*Lease{l}
		for _, renewal := range []time.Duration{time.Hour, time.Minute} { // the second one is older
			ms := renewal.Milliseconds()
			_, err := p.event(Reply{Event: "renewed", Token: "a", Valid: &ms}, at)
			check.ErrorIs(t, err, nil)
		}
		got, latest := l.Deadline().Sub(at), l.Latest().Sub(at)
		if want := time.Hour - p.options.leeway(time.Hour); got != want || latest != time.Hour {
			t.Errorf("%s: the renewed lease ends after %s, at the latest %s; not %s", name, got, latest, want)
		}
	}
}
