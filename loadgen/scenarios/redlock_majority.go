package scenarios

import (
	"time"

	"locktop/loadgen"
)

// redlockMajority shows the failure of three of five servers.
func redlockMajority() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "redlock-majority",
		Caption: "Three of five servers fail, and the other two are no majority, so no client gets a lock until the servers are back. " +
			"A quorum prefers no holder to two holders.",
		Watch:    "errors instead of locks, and 0 overlaps when the servers return",
		Lock:     loadgen.Lock{Kind: loadgen.Redlock, TTL: 2 * time.Second},
		Clients:  10,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(50 * time.Millisecond),
		Patience: time.Second,
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 1, For: 4 * time.Second},
			{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 2, For: 4 * time.Second},
			{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 5, For: 4 * time.Second},
		},
		Expect:   expect("errors.count > 0", "overlap.count == 0", "late-work.count == 0", "acquired.count > 0"),
		Duration: 10 * time.Second,
	}
}
