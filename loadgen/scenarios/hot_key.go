package scenarios

import (
	"time"

	"locktop/loadgen"
)

// hotKey shows many clients that contend for a few keys.
func hotKey() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "hot-key",
		Caption: "200 clients on 100 connections compete for 50 locks, and most of them want the first few. " +
			"No two clients hold the same lock at once, but the queue for the hottest key makes wait p99 many times wait p50.",
		Watch:    "wait p99, which is many times wait p50",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex},
		Keys:     loadgen.Keys{Pick: loadgen.PickZipf, N: 50, Skew: 1.1},
		Clients:  200,
		Hold:     loadgen.LogNormal(5*time.Millisecond, 60*time.Millisecond),
		Think:    loadgen.Exp(200 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "corrupt.count == 0", "stuck.count == 0"),
		Duration: 20 * time.Second,
	}
}
