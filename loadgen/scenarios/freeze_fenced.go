package scenarios

import (
	"time"

	"locktop/loadgen"
)

// freezeFenced is freeze with a resource that checks fences.
func freezeFenced() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "freeze-fenced",
		Caption: "A holder freezes as in the scene freeze, but each hold has a fencing token, and the resource refuses a token below the largest one that it has seen. " +
			"The late write is refused.",
		Watch:   "refused stale writes, which the scene freeze accepts",
		Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second, Fence: true},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 6,
		Hold:    loadgen.Const(50 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: time.Second, Kind: loadgen.Freeze, For: 3 * time.Second},
			{At: 5 * time.Second, Kind: loadgen.Freeze, Clients: 2, For: 2 * time.Second},
		},
		Expect:   expect("late-work.count > 0", "fenced.count > 0", "corrupt.count == 0", "overlap.count == 0", "foreign-unlock.count == 0"),
		Duration: 9 * time.Second,
	}
}
