package scenarios

import (
	"time"

	"locktop/loadgen"
)

// twoKeyRw shows a read-write lock with one key for all readers.
func twoKeyRw() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "two-key-rw",
		Caption: "All readers share one key, and the first reader that leaves deletes it. " +
			"A writer then finds no reader, and enters while the others still read.",
		Watch:    "overlaps of a writer with readers",
		Lock:     loadgen.Lock{Kind: "classic/two-key-rw", TTL: 2 * time.Second},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  8,
		Reads:    0.7,
		Hold:     loadgen.Exp(50 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("overlap.count > 0"),
		Duration: 6 * time.Second,
	}
}
