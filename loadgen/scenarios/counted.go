package scenarios

import (
	"time"

	"locktop/loadgen"
)

// counted shows a reentrant lock whose entries only the client counts.
func counted() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "counted",
		Caption: "A client renews its lock twice, but the work takes longer than that. " +
			"Nothing tells the holder: its counter says that it is still inside, so it writes while the next holder is inside.",
		Watch:    "late work and stale writes accepted",
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
