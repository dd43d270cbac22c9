package main

import (
	"math/rand/v2"
	"time"

	"locktop/loadgen"
)

// The times of a round. A fault is given time to be over before the round is:
// what a round leaves behind can be told only of servers in good health.
const (
	firstFault = time.Second
	settling   = ttl + 2*time.Second
	minGap     = 2 * time.Second
	maxGap     = 9 * time.Second
	minLength  = 200 * time.Millisecond
	maxLength  = 4 * time.Second // longer than a lease lasts
)

// blow is a fault that strikes servers: what it is, when, which, and how long.
type blow struct {
	at    time.Duration
	kind  blowKind
	nodes []int // counted from 0
	lasts time.Duration
}

// blowKind is a way to strike a server.
type blowKind string

const (
	kill         blowKind = "kill"         // and a restart with what it had
	stop         blowKind = "stop"         // SIGSTOP, then SIGCONT
	pause        blowKind = "pause"        // CLIENT PAUSE of everything
	pauseWrites  blowKind = "pause-writes" // CLIENT PAUSE of writes
	forgetScript blowKind = "script-flush" // SCRIPT FLUSH
)

func blowKinds() []blowKind { return []blowKind{kill, stop, pause, pauseWrites, forgetScript} }

// blows are the faults of some servers in a round: the same seed, the same blows.
func blows(seed uint64, length time.Duration, servers int) []blow {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []blow
	kinds := shuffled(r, blowKinds())
	for at := firstFault; ; at += uniform(r, minGap, maxGap) {
		b := blow{at: at, kind: kinds[len(all)%len(kinds)], lasts: uniform(r, minLength, maxLength)}
		// With two nodes of five a Redlock goes on; with three it must say so.
		b.nodes = r.Perm(servers)[:1+r.IntN(max(servers/2+1, 1))]
		if b.kind == forgetScript {
			b.lasts = 0
		}
		if at += b.lasts; at > length-settling {
			return all
		}
		all = append(all, b)
	}
}

// troubles are the faults that strike the clients of a kind in a round.
func troubles(seed uint64, length time.Duration, l loadgen.Lock) []loadgen.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := []loadgen.FaultKind{loadgen.Crash, loadgen.Cut, loadgen.CutReplies, loadgen.Slow, loadgen.Greedy}
	if l.Fence {
		// A holder that sleeps past its lease writes when it wakes up. No lock
		// prevents that; a number does.
		kinds = append(kinds, loadgen.Freeze)
	}
	kinds = shuffled(r, kinds)
	var all []loadgen.Fault
	for at := firstFault; ; at += uniform(r, minGap/2, maxGap/3) {
		f := loadgen.Fault{At: at, Kind: kinds[len(all)%len(kinds)], Clients: 1 + r.IntN(2), For: uniform(r, minLength, maxLength)}
		if f.Kind == loadgen.Slow {
			f.Delay = uniform(r, 5*time.Millisecond, 80*time.Millisecond)
			f.Jitter = f.Delay / 2
		}
		if at+f.For > length-settling {
			return all
		}
		all = append(all, f)
	}
}

func uniform(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

func shuffled[T any](r *rand.Rand, all []T) []T {
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
