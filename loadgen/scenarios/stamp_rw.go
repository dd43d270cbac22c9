package scenarios

import (
	"time"

	"locktop/loadgen"
)

// stampRw shows a read-write lock with one timestamp for all readers.
func stampRw() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "stamp-rw",
		Caption: "Each reader overwrites the timestamp of the reader before it, and the reader that came last removes it for all. " +
			"A writer then enters while earlier readers still read.",
		Watch:    "overlaps of a writer with readers",
		Lock:     loadgen.Lock{Kind: "classic/stamp-rw", TTL: 2 * time.Second},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  8,
		Reads:    0.7,
		Hold:     loadgen.Exp(50 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Expect:   expect("overlap.count > 0"),
		Duration: 6 * time.Second,
	}
}
