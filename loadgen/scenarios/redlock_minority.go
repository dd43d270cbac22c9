package scenarios

import (
	"time"

	"locktop/loadgen"
)

// redlockMinority shows the failure of two of five servers.
func redlockMinority() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "redlock-minority",
		Caption: "Two of five servers fail and come back. " +
			"The other three are still a majority, so clients still acquire locks, but more slowly: a client that misses one of the three has to try again.",
		Watch:   "acquired and wait p99, although two of five servers fail",
		Lock:    loadgen.Lock{Kind: loadgen.Redlock, TTL: 2 * time.Second},
		Clients: 10,
		Hold:    loadgen.Exp(20 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 1, For: 5 * time.Second},
			{At: 3 * time.Second, Kind: loadgen.NodeDown, Node: 4, For: 4 * time.Second},
		},
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "stuck.count == 0", "acquired.count > 0"),
		Duration: 10 * time.Second,
	}
}
