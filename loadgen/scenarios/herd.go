package scenarios

import (
	"time"

	"locktop/loadgen"
)

// herd compares three ways to wait for one key.
func herd() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "herd",
		Caption: "A hundred clients in five processes wait for one lock in three ways: by asking again and again, by listening for the release, and in a queue. " +
			"Asking costs many times more Redis commands per hold than the other two, and in the queue the longest wait is hardly longer than the usual one.",
		Watch:    "commands per hold, and wait p99 beside p50",
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
