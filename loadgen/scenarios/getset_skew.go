package scenarios

import (
	"time"

	"locktop/loadgen"
)

// getsetSkew shows expiry times that depend on the clocks of clients.
func getsetSkew() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "getset-skew",
		Caption: "The value of a lock is the time at which it ends, and the clock of one client is 3 s ahead. " +
			"For this client every held lock seems to be over, so it enters while the holder is inside.",
		Watch:   "overlaps, from the moment at which the clock changes",
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
