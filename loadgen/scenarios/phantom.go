package scenarios

import (
	"time"

	"locktop/loadgen"
)

// phantom loses the answers of the server.
func phantom() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "phantom",
		Caption: "For a while one client's requests arrive and the answers do not: the server grants it locks that it does not know of. " +
			"They are taken back as soon as the answers get through, and end by themselves if they never do.",
		Watch:   "a holder that believes it is waiting",
		Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: 2 * time.Second},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 6,
		Hold:    loadgen.Exp(20 * time.Millisecond),
		Think:   loadgen.Exp(50 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.CutReplies, For: 4 * time.Second},
		},
		Expect:   expect("overlap.count == 0", "late-work.count == 0", "stuck.count == 0"),
		Duration: 9 * time.Second,
	}
}
