package scenarios

import (
	"time"

	"locktop/loadgen"
)

// phantom shows lost replies.
func phantom() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "phantom",
		Caption: "For 4 s the requests of one client arrive but the replies are lost, so this client holds a lock and does not know it. " +
			"The others wait until the lease ends, or until the replies arrive and the client releases the lock.",
		Watch:   "wait max of more than 1 s, with 0 overlaps",
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
