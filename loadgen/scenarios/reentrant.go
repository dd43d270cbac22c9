package scenarios

import (
	"time"

	"locktop/loadgen"
)

// reentrant shows a lock that its holder enters more than once.
func reentrant() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "reentrant",
		Caption: "Every holder enters its lock three times and has to leave it as often. " +
			"The server keeps the count, so the lock is free at the third release and not before.",
		Watch:    "the count beside the holder",
		Lock:     loadgen.Lock{Kind: loadgen.Reentrant, TTL: 2 * time.Second},
		Clients:  20,
		Depth:    3,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "stuck.count == 0", "errors.count == 0"),
		Duration: 10 * time.Second,
	}
}
