// Package scenarios contains the ready-made scenarios. Each shows one effect within
// seconds, and expects it in its metrics; the tests of package loadgen run them all.
package scenarios

import (
	"fmt"
	"time"

	"locktop/loadgen"
)

// All returns the scenarios, from simple to advanced, and then those of the historic
// kinds.
func All() []loadgen.Scenario {
	return []loadgen.Scenario{
		{
			Name: "hot-key",
			Caption: "200 clients on 100 connections compete for 50 locks, and most of them want the first few. " +
				"No two clients hold the same lock at once, but the queue for the hottest key makes wait p99 many times wait p50.",
			Watch:    "wait p99, which is many times wait p50",
			Lock:     loadgen.Lock{Kind: loadgen.Mutex},
			Keys:     loadgen.Keys{Pick: loadgen.PickZipf, N: 50, Skew: 1.1},
			Clients:  200,
			Hold:     loadgen.LogNormal(5*time.Millisecond, 60*time.Millisecond),
			Think:    loadgen.Exp(200 * time.Millisecond),
			Expect:   expect("overlap.count == 0", "late_work.count == 0", "stale_write_accepted.count == 0", "stuck_key.count == 0"),
			Duration: 20 * time.Second,
		},
		{
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
			Expect:   expect("overlap.count == 0", "stuck_key.count == 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "convoy",
			Caption: "Eight clients do work of 20 ms under one lock, and a client that is refused asks again after about half a second. " +
				"There is a waiter all the time, and yet the lock is free most of the time: the next holder does not notice the release.",
			Watch:    "hand-off p90 beside held p90; the finding slow-hand-off after 10 s",
			Lock:     loadgen.Lock{Kind: loadgen.RW, Wait: loadgen.Wait{Poll: 500 * time.Millisecond, Jitter: 0.5}},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  8,
			Hold:     loadgen.Const(20 * time.Millisecond),
			Think:    loadgen.Exp(500 * time.Millisecond),
			Expect:   expect("hand_off.p90 > 100ms", "overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0"),
			Duration: 20 * time.Second,
		},
		{
			Name: "crash",
			Caption: "Three holders crash without a release of their locks. " +
				"The server keeps each key for the rest of its TTL of 2 s, and then another client gets the lock.",
			Watch:   "hand-off max: a key stays locked for about 2 s after a crash",
			Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: 2 * time.Second},
			Clients: 12,
			Hold:    loadgen.Exp(100 * time.Millisecond),
			Think:   loadgen.Exp(100 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: 2 * time.Second, Kind: loadgen.Crash, Clients: 2, For: 3 * time.Second},
				{At: 6 * time.Second, Kind: loadgen.Crash, For: 2 * time.Second},
			},
			Expect:   expect("abandoned.count == 3", "overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "freeze",
			Caption: "A holder gets no CPU for longer than its lease, continues its work afterwards, and writes. " +
				"The lock kept its promise, but the data is corrupt: no lease can stop a client that does not run.",
			Watch:   "late work and stale write accepted, with 0 overlaps within leases",
			Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second},
			Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients: 6,
			Hold:    loadgen.Const(50 * time.Millisecond),
			Think:   loadgen.Exp(50 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: time.Second, Kind: loadgen.Freeze, For: 3 * time.Second},
				{At: 5 * time.Second, Kind: loadgen.Freeze, Clients: 2, For: 2 * time.Second},
			},
			Expect:   expect("late_work.count > 0", "stale_write_accepted.count > 0", "stale_write_refused.count == 0", "overlap.count == 0", "work_overlap.count > 0", "foreign_unlock.count == 0"),
			Duration: 9 * time.Second,
		},
		{
			Name: "freeze-fenced",
			Caption: "A holder freezes as in the scene freeze, but each hold has a fencing token, and the resource refuses a token below the largest one that it has seen. " +
				"The late write is refused.",
			Watch:   "stale write refused: the scene freeze accepts such writes",
			Lock:    loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second, Fence: true},
			Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients: 6,
			Hold:    loadgen.Const(50 * time.Millisecond),
			Think:   loadgen.Exp(50 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: time.Second, Kind: loadgen.Freeze, For: 3 * time.Second},
				{At: 5 * time.Second, Kind: loadgen.Freeze, Clients: 2, For: 2 * time.Second},
			},
			Expect:   expect("late_work.count > 0", "stale_write_refused.count > 0", "stale_write_accepted.count == 0", "overlap.count == 0", "foreign_unlock.count == 0"),
			Duration: 9 * time.Second,
		},
		{
			Name: "renewal",
			Caption: "The work takes 3 s and a lease lasts 1 s. " +
				"A client renews its lease three times per second, so it does not lose its lock, and after a crash the lock would be free within 1 s.",
			Watch:    "renewals, with 0 expired and 0 lost",
			Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  3,
			Hold:     loadgen.Const(3 * time.Second),
			Think:    loadgen.Exp(200 * time.Millisecond),
			Expect:   expect("renewals.count > 0", "lost_or_expired.rate == 0%", "overlap.count == 0", "late_work.count == 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "renewal-bounded",
			Caption: "The work takes 3 s again, but a client renews its lease at most three times, so that work without an end cannot hold the lock for ever. " +
				"The holder learns in time that its lease ends, and stops.",
			Watch:    "expired, with 0 late work",
			Lock:     loadgen.Lock{Kind: loadgen.Mutex, TTL: time.Second, Renew: loadgen.Renew{Max: 3}},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  3,
			Hold:     loadgen.Const(3 * time.Second),
			Think:    loadgen.Exp(200 * time.Millisecond),
			Expect:   expect("expired.count > 0", "overlap.count == 0", "late_work.count == 0", "stale_write_accepted.count == 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "readers-writers",
			Caption: "Nine in ten clients are readers, which share the lock, and the others are writers, which hold it alone. " +
				"Neither side starves: a waiting writer keeps new readers out, and readers that waited come before the next writer.",
			Watch:    "wait max, and 0 overlaps of a writer with another client",
			Lock:     loadgen.Lock{Kind: loadgen.RW, TTL: 2 * time.Second},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  30,
			Reads:    0.9,
			Hold:     loadgen.Exp(20 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Expect:   expect("overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "reentrant",
			Caption: "Every holder acquires its own lock three times, and must release it three times. " +
				"The server counts, so the lock is free after the third release and not before.",
			Watch:    "0 overlaps and 0 errors; on the screen, ×3 beside the holder",
			Lock:     loadgen.Lock{Kind: loadgen.Reentrant, TTL: 2 * time.Second},
			Clients:  20,
			Depth:    3,
			Hold:     loadgen.Exp(20 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Expect:   expect("overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0", "errors.count == 0"),
			Duration: 10 * time.Second,
		},
		{
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
			Expect:   expect("overlap.count == 0", "work_overlap.count == 0", "stuck_key.count == 0", "abandoned.count == 1"),
			Duration: 6 * time.Second,
		},
		{
			Name: "several-keys",
			Caption: "Each client locks two of five keys together: it gets both or none, so there is no deadlock. " +
				"One holder crashes, and its two keys are free after the TTL.",
			Watch:    "acquired, with 0 overlaps and 0 stuck keys",
			Lock:     loadgen.Lock{Kind: loadgen.All, TTL: 2 * time.Second, KeysPerHold: 2},
			Keys:     loadgen.Keys{N: 5},
			Clients:  5,
			Hold:     loadgen.Exp(20 * time.Millisecond),
			Think:    loadgen.Exp(20 * time.Millisecond),
			Faults:   []loadgen.Fault{{At: 2 * time.Second, Kind: loadgen.Crash, For: 3 * time.Second}},
			Expect:   expect("overlap.count == 0", "work_overlap.count == 0", "stuck_key.count == 0", "abandoned.count == 1", "acquired.count > 100"),
			Duration: 6 * time.Second,
		},
		{
			Name: "redlock-minority",
			Caption: "Two of five servers fail and come back. " +
				"The other three are still a majority, so clients still acquire locks, but more slowly: a client that misses one of the three has to try again.",
			Watch:   "acquired and wait p99, although two of five servers fail",
			Lock:    loadgen.Lock{Kind: loadgen.Redlock, TTL: 2 * time.Second},
			Clients: 10,
			Hold:    loadgen.Exp(20 * time.Millisecond),
			Think:   loadgen.Exp(50 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 1, For: 5 * time.Second},
				{At: 3 * time.Second, Kind: loadgen.NodeDown, Node: 4, For: 4 * time.Second},
			},
			Expect:   expect("overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0", "acquired.count > 0"),
			Duration: 10 * time.Second,
		},
		{
			Name: "redlock-majority",
			Caption: "Three of five servers fail, and the other two are no majority, so no client gets a lock until the servers are back. " +
				"A quorum prefers no holder to two holders.",
			Watch:    "errors instead of locks, and 0 overlaps when the servers return",
			Lock:     loadgen.Lock{Kind: loadgen.Redlock, TTL: 2 * time.Second},
			Clients:  10,
			Hold:     loadgen.Exp(20 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Patience: time.Second,
			Faults: []loadgen.Fault{
				{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 1, For: 4 * time.Second},
				{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 2, For: 4 * time.Second},
				{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 5, For: 4 * time.Second},
			},
			Expect:   expect("errors.count > 0", "overlap.count == 0", "late_work.count == 0", "acquired.count > 0"),
			Duration: 10 * time.Second,
		},
		{
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
			Expect:   expect("wait.max > 1s", "overlap.count == 0", "late_work.count == 0", "stuck_key.count == 0"),
			Duration: 9 * time.Second,
		},
		{
			Name: "setnx-crash",
			Caption: "A client acquires a lock with SETNX and crashes before it sends EXPIRE. " +
				"The key has no TTL, so no client can acquire this lock again.",
			Watch:   "stuck keys, and the clients that are still waiting",
			Lock:    loadgen.Lock{Kind: "classic/setnx-expire", TTL: 500 * time.Millisecond},
			Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients: 6,
			Hold:    loadgen.Const(20 * time.Millisecond),
			Think:   loadgen.Exp(50 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: 2 * time.Second, Kind: loadgen.Crash, Before: "EXPIRE"},
			},
			Expect:   expect("stuck_key.count == 1", "overlap.count == 0", "foreign_unlock.count == 0"),
			Duration: 6 * time.Second,
		},
		{
			Name: "getset-skew",
			Caption: "The value of a lock is the time at which it ends, and the clock of one client is 3 s ahead. " +
				"For this client every held lock seems to be over, so it enters while the holder is inside.",
			Watch:   "overlaps, from the moment at which the clock changes",
			Lock:    loadgen.Lock{Kind: "classic/getset", TTL: time.Second},
			Keys:    loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients: 5,
			Hold:    loadgen.Const(100 * time.Millisecond),
			Think:   loadgen.Exp(50 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: 2 * time.Second, Kind: loadgen.Skew, By: 3 * time.Second, For: 3 * time.Second},
			},
			Expect:   expect("overlap.count > 0"),
			Duration: 6 * time.Second,
		},
		{
			Name: "blind-delete",
			Caption: "Sometimes the work takes longer than the TTL, and then the holder deletes the key without a check of its owner. " +
				"The key is by then the lock of the next holder, so a third client enters beside that one.",
			Watch:    "foreign unlocks, and the overlaps that follow them",
			Lock:     loadgen.Lock{Kind: "classic/blind-delete", TTL: 300 * time.Millisecond},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  6,
			Hold:     loadgen.Bimodal(100*time.Millisecond, 450*time.Millisecond, 0.3),
			Think:    loadgen.Exp(20 * time.Millisecond),
			Expect:   expect("foreign_unlock.count > 0", "overlap.count > 0", "late_work.count > 0"),
			Duration: 6 * time.Second,
		},
		{
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
			Expect:   expect("foreign_unlock.count > 0"),
			Duration: 9 * time.Second,
		},
		{
			Name: "counted",
			Caption: "A client renews its lock twice, but the work takes longer than that. " +
				"Nothing tells the holder: its counter says that it is still inside, so it writes while the next holder is inside.",
			Watch:    "late work and stale write accepted",
			Lock:     loadgen.Lock{Kind: "classic/counted", TTL: 600 * time.Millisecond, Renew: loadgen.Renew{Max: 2}},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  4,
			Depth:    2,
			Hold:     loadgen.Const(1500 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Expect:   expect("late_work.count > 0", "work_overlap.count > 0", "stale_write_accepted.count > 0"),
			Duration: 8 * time.Second,
		},
		{
			Name: "two-key-rw",
			Caption: "All readers share one key, and the first reader that leaves deletes it. " +
				"A writer then finds no reader, and enters while the others still read.",
			Watch:    "overlaps of a writer with readers",
			Lock:     loadgen.Lock{Kind: "classic/two-key-rw", TTL: 2 * time.Second},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  8,
			Reads:    0.7,
			Hold:     loadgen.Exp(50 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Expect:   expect("overlap.count > 0"),
			Duration: 6 * time.Second,
		},
		{
			Name: "stamp-rw",
			Caption: "Each reader overwrites the timestamp of the reader before it, and the reader that came last removes it for all. " +
				"A writer then enters while earlier readers still read.",
			Watch:    "overlaps of a writer with readers",
			Lock:     loadgen.Lock{Kind: "classic/stamp-rw", TTL: 2 * time.Second},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  8,
			Reads:    0.7,
			Hold:     loadgen.Exp(50 * time.Millisecond),
			Think:    loadgen.Exp(50 * time.Millisecond),
			Expect:   expect("overlap.count > 0"),
			Duration: 6 * time.Second,
		},
		{
			Name: "quorum-semaphore",
			Caption: "A semaphore with two permits is kept on a majority of the servers, and each packet takes 0 to 4 ms. " +
				"Each server counts to two, but three clients hold different majorities, so more clients are inside than there are permits.",
			Watch:    "overlaps: three clients inside with two permits",
			Lock:     loadgen.Lock{Kind: "classic/quorum-semaphore", TTL: 2 * time.Second, Permits: 2},
			Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
			Clients:  8,
			Hold:     loadgen.Exp(20 * time.Millisecond),
			Think:    loadgen.Exp(20 * time.Millisecond),
			Faults:   []loadgen.Fault{{Kind: loadgen.Slow, Clients: 8, Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond}},
			Expect:   expect("overlap.count > 0"),
			Duration: 6 * time.Second,
		},
	}
}

// Find returns the scenario with this name.
func Find(name string) (s loadgen.Scenario, found bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return loadgen.Scenario{}, false
}

// expect parses thresholds. It panics if one is invalid.
func expect(texts ...string) []loadgen.Threshold {
	all := make([]loadgen.Threshold, len(texts))
	for i, text := range texts {
		t, err := loadgen.ParseThreshold(text)
		if err != nil {
			panic(fmt.Sprintf("scenarios: %v", err))
		}
		all[i] = t
	}
	return all
}
