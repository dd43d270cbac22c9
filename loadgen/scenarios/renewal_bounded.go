package scenarios

import (
	"time"

	"locktop/loadgen"
)

// renewalBounded shows work that takes longer than all renewals.
func renewalBounded() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "renewal-bounded",
		Caption: "The same work, but a lease is renewed three times at the most: a job that runs away must not hold for ever. " +
			"Its holder is told in time and stops.",
		Watch:    "leases that expire under their holders, and still no late work",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second, Renew: loadgen.Renew{Max: 3}},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  3,
		Hold:     loadgen.Const(3 * time.Second),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("expired.count > 0", "overlap.count == 0", "late-work.count == 0", "corrupt.count == 0"),
		Duration: 10 * time.Second,
	}
}
