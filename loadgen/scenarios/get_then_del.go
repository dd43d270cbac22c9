package scenarios

import (
	"time"

	"locktop/loadgen"
)

// getThenDel shows an unlock that checks the owner in the client.
func getThenDel() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "get-then-del",
		Caption: "A client reads that it owns the lock, and stops for 1 s before it sends DEL. " +
			"Meanwhile the lock expires, another client acquires it, and the DEL removes the lock of that client.",
		Watch:   "foreign unlocks by clients that checked the owner first",
		Lock:    loadgen.Lock{Kind: "classic/get-then-del", TTL: 400 * time.Millisecond},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 8,
		Hold:    loadgen.Const(150 * time.Millisecond),
		Think:   loadgen.Exp(20 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 1 * time.Second, Kind: loadgen.Freeze, Before: "DEL", Clients: 2, For: time.Second},
			{At: 3 * time.Second, Kind: loadgen.Freeze, Before: "DEL", Clients: 2, For: time.Second},
			{At: 5 * time.Second, Kind: loadgen.Freeze, Before: "DEL", Clients: 2, For: time.Second},
		},
		Expect:   expect("foreign-unlock.count > 0"),
		Duration: 9 * time.Second,
	}
}
