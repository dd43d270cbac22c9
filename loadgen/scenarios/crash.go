package scenarios

import (
	"time"

	"locktop/loadgen"
)

// crash shows holders that crash.
func crash() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "crash",
		Caption: "Three holders crash without a release of their locks. " +
			"The server keeps each key for the rest of its TTL of 2 s, and then another client gets the lock.",
		Watch:   "hand-off max: a key stays locked for about 2 s after a crash",
		Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: 2 * time.Second},
		Clients: 12,
		Hold:    loadgen.Exp(100 * time.Millisecond),
		Think:   loadgen.Exp(100 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.Crash, Clients: 2, For: 3 * time.Second},
			{At: 6 * time.Second, Kind: loadgen.Crash, For: 2 * time.Second},
		},
		Expect:   expect("abandoned.count == 3", "overlap.count == 0", "late-work.count == 0", "stuck.count == 0"),
		Duration: 10 * time.Second,
	}
}
