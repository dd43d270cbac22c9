package scenarios

import (
	"time"

	"locktop/loadgen"
)

// readersWriters shows a read-write lock.
func readersWriters() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "readers-writers",
		Caption: "Nine in ten clients read and share the lock, the tenth writes and has it alone. " +
			"Neither side starves: a writer that waits lets no new readers in, and readers that waited go before the next writer.",
		Watch:    "the longest wait, and never a writer beside another client",
		Lock:     loadgen.Lock{Kind: loadgen.RW, TTL: 2 * time.Second},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  30,
		Reads:    0.9,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "stuck.count == 0"),
		Duration: 10 * time.Second,
	}
}
