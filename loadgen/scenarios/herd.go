package scenarios

import (
	"time"

	"locktop/loadgen"
)

// herd compares three ways to wait for one key.
func herd() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "herd",
		Caption: "100 clients in 5 processes wait for one lock in three ways: they ask again and again, they listen for the release, or they stand in a queue. " +
			"Asking costs many times more Redis commands per hold than the other two, and in the queue wait p99 is close to wait p50.",
		Watch:    "commands per hold, and wait p99 beside wait p50",
		Lock:     loadgen.Lock{Kind: loadgen.Mutex, Wait: loadgen.Wait{Poll: 5 * time.Millisecond, Jitter: 0.5}},
		Versus:   []loadgen.Lock{{Kind: loadgen.Mutex}, {Kind: loadgen.Fair}},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  100,
		Conns:    5,
		Hold:     loadgen.Const(2 * time.Millisecond),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Expect:   expect("overlap.count == 0", "stuck.count == 0"),
		Duration: 10 * time.Second,
	}
}
