package scenarios

import (
	"time"

	"locktop/loadgen"
)

// counted shows a reentrant lock whose entries only the client counts.
func counted() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "counted",
		Caption: "The lock is renewed twice and the work takes longer than that. " +
			"The holder is not told: its counter still says that it is inside, and it writes beside the next holder.",
		Watch:    "late work and corrupt writes",
		Lock:     loadgen.Lock{Kind: "classic/counted", TTL: 600 * time.Millisecond, Renew: loadgen.Renew{Max: 2}},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  4,
		Depth:    2,
		Hold:     loadgen.Const(1500 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("late-work.count > 0", "work-overlap.count > 0", "corrupt.count > 0"),
		Duration: 8 * time.Second,
	}
}
