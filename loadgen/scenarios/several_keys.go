package scenarios

import (
	"time"

	"locktop/loadgen"
)

// severalKeys shows clients that lock two of five keys together, in different orders.
func severalKeys() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "several-keys",
		Caption: "Each client locks two of five keys together, as the dining philosophers take their forks. " +
			"It gets both or none, so there is no deadlock, whatever the order, and the keys of a client that crashes are free after the TTL.",
		Watch:    "both keys of a client at once, and no deadlock",
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
