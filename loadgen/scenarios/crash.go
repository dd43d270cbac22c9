package scenarios

import (
	"time"

	"locktop/loadgen"
)

// crash shows holders that crash.
func crash() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "crash",
		Caption: "Three holders die without releasing their locks. " +
			"No other client can acquire those locks for what is left of their leases, and not for a moment longer.",
		Watch:   "the dead clients, and how long the others wait: 2 s at most",
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
