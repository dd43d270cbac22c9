package scenarios

import (
	"time"

	"locktop/loadgen"
)

// freeze shows a holder that does not run for longer than its lease.
func freeze() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "freeze",
		Caption: "A holder gets no CPU for longer than its lease, continues its work afterwards, and writes. " +
			"The lock kept its promise, but the data is corrupt: no lease can stop a client that does not run.",
		Watch:   "late work and stale writes accepted, with 0 overlaps within leases",
		Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 6,
		Hold:    loadgen.Const(50 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: time.Second, Kind: loadgen.Freeze, For: 3 * time.Second},
			{At: 5 * time.Second, Kind: loadgen.Freeze, Clients: 2, For: 2 * time.Second},
		},
		Expect:   expect("late-work.count > 0", "corrupt.count > 0", "fenced.count == 0", "overlap.count == 0", "work-overlap.count > 0", "foreign-unlock.count == 0"),
		Duration: 9 * time.Second,
	}
}
