package scenarios

import (
	"time"

	"locktop/loadgen"
)

// renewal shows work that takes longer than the TTL.
func renewal() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "renewal",
		Caption: "The work takes 3 s and a lease lasts 1 s. " +
			"A client renews its lease three times per second, so it does not lose its lock, and after a crash the lock would be free within 1 s.",
		Watch:    "renewals, with 0 expired and 0 lost",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  3,
		Hold:     loadgen.Const(3 * time.Second),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("renewals.count > 0", "lost.rate == 0%", "overlap.count == 0", "late-work.count == 0"),
		Duration: 10 * time.Second,
	}
}
