package scenarios

import (
	"time"

	"locktop/loadgen"
)

// renewalBounded shows work that takes longer than all renewals.
func renewalBounded() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "renewal-bounded",
		Caption: "The work takes 3 s again, but a client renews its lease at most three times, so that work without an end cannot hold the lock for ever. " +
			"The holder learns in time that its lease ends, and stops.",
		Watch:    "expired, with 0 late work",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second, Renew: loadgen.Renew{Max: 3}},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  3,
		Hold:     loadgen.Const(3 * time.Second),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("expired.count > 0", "overlap.count == 0", "late-work.count == 0", "corrupt.count == 0"),
		Duration: 10 * time.Second,
	}
}
