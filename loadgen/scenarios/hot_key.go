package scenarios

import (
	"time"

	"locktop/loadgen"
)

// hotKey shows many clients that contend for a few keys.
func hotKey() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "hot-key",
		Caption: "Two hundred clients on a hundred connections want fifty locks, and most of them want the first few. " +
			"No two clients ever hold the same lock, but the queue for the hot key sets how long everybody waits.",
		Watch:    "wait p99 against p50, and how long the first key is held",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex},
		Keys:     loadgen.Keys{Pick: loadgen.PickZipf, N: 50, Skew: 1.1},
		Clients:  200,
		Hold:     loadgen.LogNormal(5*time.Millisecond, 60*time.Millisecond),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "corrupt.count == 0", "stuck.count == 0"),
		Duration: 20 * time.Second,
	}
}
