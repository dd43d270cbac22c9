package scenarios

import (
	"time"

	"locktop/loadgen"
)

// getsetSkew shows expiry times that depend on the clocks of clients.
func getsetSkew() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "getset-skew",
		Caption: "The lock holds the time at which it ends, and one client's clock is three seconds ahead. " +
			"To it a lock that is held looks over, so it walks in.",
		Watch:   "overlaps from the moment the clock goes wrong",
		Lock:    loadgen.Lock{Kind: "classic/getset", TTL: time.Second},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 5,
		Hold:    loadgen.Const(100 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.Skew, By: 3 * time.Second, For: 3 * time.Second},
		},
		Expect:   expect("overlap.count > 0"),
		Duration: 6 * time.Second,
	}
}
