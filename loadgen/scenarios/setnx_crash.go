package scenarios

import (
	"time"

	"locktop/loadgen"
)

// setnxCrash shows SETNX with a separate EXPIRE.
func setnxCrash() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "setnx-crash",
		Caption: "A client acquires a lock with SETNX and crashes before it sends EXPIRE. " +
			"The key has no TTL, so no client can acquire this lock again.",
		Watch:   "stuck keys, and the clients that are still waiting",
		Lock:    loadgen.Lock{Kind: "classic/setnx-expire", TTL: 500 * time.Millisecond},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 6,
		Hold:    loadgen.Const(20 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.Crash, Before: "EXPIRE"},
		},
		Expect:   expect("stuck.count == 1", "overlap.count == 0", "foreign-unlock.count == 0"),
		Duration: 6 * time.Second,
	}
}
