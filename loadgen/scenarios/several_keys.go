package scenarios

import (
	"time"

	"locktop/loadgen"
)

// severalKeys shows clients that lock two of five keys together, in different orders.
func severalKeys() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "several-keys",
		Caption: "Each client locks two of five keys together: it gets both or none, so there is no deadlock. " +
			"One holder crashes, and its two keys are free after the TTL.",
		Watch:    "acquired, with 0 overlaps and 0 stuck keys",
		Lock:     loadgen.Lock{Kind: loadgen.All, TTL: 2 * time.Second, KeysPerHold: 2},
		Keys:     loadgen.Keys{N: 5},
		Clients:  5,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Faults:   []loadgen.Fault{{At: 2 * time.Second, Kind: loadgen.Crash, For: 3 * time.Second}},
		Expect:   expect("overlap.count == 0", "work-overlap.count == 0", "stuck.count == 0", "abandoned.count == 1", "acquired.count > 100"),
		Duration: 6 * time.Second,
	}
}
