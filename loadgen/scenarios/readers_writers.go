package scenarios

import (
	"time"

	"locktop/loadgen"
)

// readersWriters shows a read-write lock.
func readersWriters() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "readers-writers",
		Caption: "Nine in ten clients are readers, which share the lock, and the others are writers, which hold it alone. " +
			"Neither side starves: a waiting writer keeps new readers out, and readers that waited come before the next writer.",
		Watch:    "longest wait, and 0 overlaps of a writer with another client",
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
