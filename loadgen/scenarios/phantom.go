package scenarios

import (
	"time"

	"locktop/loadgen"
)

// phantom shows lost replies.
func phantom() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "phantom",
		Caption: "For a while one client's requests arrive and the replies are lost: the server grants it a lock that it does not know of. " +
			"The others wait until that lease runs out, or until the replies get through and the client gives the lock back.",
		Watch:   "a holder that believes it is still waiting",
		Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: 2 * time.Second},
		Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients: 3, // so few that the lock is usually free, and the server grants the request
		Hold:    loadgen.Const(time.Millisecond),
		Think:   loadgen.Exp(150 * time.Millisecond),
		Faults: []loadgen.Fault{
			{At: 2 * time.Second, Kind: loadgen.DropReplies, For: 4 * time.Second},
		},
		Expect:   expect("wait.max > 1s", "overlap.count == 0", "late-work.count == 0", "stuck.count == 0"),
		Duration: 9 * time.Second,
	}
}
