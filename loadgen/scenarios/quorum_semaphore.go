package scenarios

import (
	"time"

	"locktop/loadgen"
)

// quorumSemaphore shows that majorities do not limit a semaphore.
func quorumSemaphore() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "quorum-semaphore",
		Caption: "A semaphore with two permits is kept on a majority of the servers, and each packet takes 0 to 4 ms. " +
			"Each server counts to two, but three clients hold different majorities, so more clients are inside than there are permits.",
		Watch:    "overlaps: three clients inside with two permits",
		Lock:     loadgen.Lock{Kind: "classic/quorum-semaphore", TTL: 2 * time.Second, Permits: 2},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  8,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Faults:   []loadgen.Fault{{Kind: loadgen.Slow, Clients: 8, Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond}},
		Expect:   expect("overlap.count > 0"),
		Duration: 6 * time.Second,
	}
}
