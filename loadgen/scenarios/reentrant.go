package scenarios

import (
	"time"

	"locktop/loadgen"
)

// reentrant shows a lock that its holder enters more than once.
func reentrant() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "reentrant",
		Caption: "Every holder acquires its own lock three times, and must release it three times. " +
			"The server counts, so the lock is free after the third release and not before.",
		Watch:    "0 overlaps and 0 errors; on the screen, ×3 beside the holder",
		Lock:     loadgen.Lock{Kind: loadgen.Reentrant, TTL: 2 * time.Second},
		Clients:  20,
		Depth:    3,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "stuck.count == 0", "errors.count == 0"),
		Duration: 10 * time.Second,
	}
}
