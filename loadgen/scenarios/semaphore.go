package scenarios

import (
	"time"

	"locktop/loadgen"
)

// semaphore compares a semaphore with a mutex when a holder crashes.
func semaphore() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "semaphore",
		Caption: "Twelve clients share a semaphore with three permits, and one holder crashes. " +
			"The other two permits stay in use until the third one expires, while a mutex with the same crash blocks all its clients for the TTL.",
		Watch:    "throughput beside that of the mutex, and 0 overlaps: never 4 inside",
		Lock:     loadgen.Lock{Kind: loadgen.Semaphore, TTL: 2 * time.Second, Permits: 3},
		Versus:   []loadgen.Lock{{Kind: loadgen.Mutex, TTL: 2 * time.Second}},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  12,
		Hold:     loadgen.Exp(20 * time.Millisecond),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Faults:   []loadgen.Fault{{At: 2 * time.Second, Kind: loadgen.Crash, For: 3 * time.Second}},
		Expect:   expect("overlap.count == 0", "work-overlap.count == 0", "stuck.count == 0", "abandoned.count == 1"),
		Duration: 6 * time.Second,
	}
}
