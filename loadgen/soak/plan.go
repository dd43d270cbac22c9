package main

import (
	"math/rand/v2"
	"time"

	"locktop/loadgen"
)

// Times of a round. All faults end before the round ends, because leftovers can be
// counted only on servers that work.
const (
	firstFault   = time.Second
	recoveryTime = ttl + 2*time.Second
	minGap       = 2 * time.Second
	maxGap       = 9 * time.Second
	minLength    = 200 * time.Millisecond
	maxLength    = 4 * time.Second // longer than the TTL
)

// serverFault is one planned fault of some servers.
type serverFault struct {
	at       time.Duration
	kind     serverFaultKind
	nodes    []int // counted from 0
	duration time.Duration
}

// serverFaultKind is a kind of server fault.
type serverFaultKind string

const (
	kill         serverFaultKind = "kill"         // then a restart with its data
	stop         serverFaultKind = "stop"         // SIGSTOP, then SIGCONT
	pause        serverFaultKind = "pause"        // CLIENT PAUSE of everything
	pauseWrites  serverFaultKind = "pause-writes" // CLIENT PAUSE of writes
	flushScripts serverFaultKind = "script-flush" // SCRIPT FLUSH
)

func serverFaultKinds() []serverFaultKind {
	return []serverFaultKind{kill, stop, pause, pauseWrites, flushScripts}
}

// serverFaults plans the server faults of a round. The same seed gives the same plan.
func serverFaults(seed uint64, length time.Duration, servers int) []serverFault {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []serverFault
	kinds := shuffled(r, serverFaultKinds())
	for at := firstFault; ; at += uniform(r, minGap, maxGap) {
		f := serverFault{at: at, kind: kinds[len(all)%len(kinds)], duration: uniform(r, minLength, maxLength)}
		// A Redlock works without two of five nodes. Without three, its clients must
		// get errors.
		f.nodes = r.Perm(servers)[:1+r.IntN(max(servers/2+1, 1))]
		if f.kind == flushScripts {
			f.duration = 0
		}
		if at += f.duration; at > length-recoveryTime {
			return all
		}
		all = append(all, f)
	}
}

// clientFaults plans the faults of the clients of one kind in a round.
func clientFaults(seed uint64, length time.Duration, l loadgen.Lock) []loadgen.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := []loadgen.FaultKind{loadgen.Crash, loadgen.Partition, loadgen.DropReplies, loadgen.Slow, loadgen.Greedy}
	if l.Fence {
		// A holder that sleeps past its lease may write when it wakes up. A lock cannot
		// prevent that, but a fence can.
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
		if at+f.For > length-recoveryTime {
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
