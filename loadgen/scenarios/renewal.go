package scenarios

import (
	"time"

	"locktop/loadgen"
)

// renewal shows work that takes longer than the TTL.
func renewal() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "renewal",
		Caption: "The work takes three seconds and the lease one. " +
			"It is renewed three times a second, so no client loses its lock, and after a crash it would still be free within a second.",
		Watch:    "the TTL that never runs out, and the renewals",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  3,
		Hold:     loadgen.Const(3 * time.Second),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("renewals.count > 0", "lost.rate == 0%", "overlap.count == 0", "late-work.count == 0"),
		Duration: 10 * time.Second,
	}
}
