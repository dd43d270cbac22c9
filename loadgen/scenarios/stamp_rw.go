package scenarios

import (
	"time"

	"locktop/loadgen"
)

// stampRw shows a read-write lock with one timestamp for all readers.
func stampRw() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "stamp-rw",
		Caption: "Every reader overwrites the stamp of the one before, and the last to come removes it for all. " +
			"A writer walks in on those who came earlier.",
		Watch:    "a writer inside together with readers",
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
