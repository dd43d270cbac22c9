package main

import (
	"math/rand/v2"
	"slices"
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

// serverFaults plans the faults of the servers of a run, of which only one affects servers at
// a time. The same seed gives the same plan.
func serverFaults(seed uint64, length time.Duration, servers int) []loadgen.Fault {
	r := rand.New(rand.NewPCG(seed, 1))
	kinds := []loadgen.FaultKind{loadgen.NodeDown, loadgen.Stop, loadgen.Pause, loadgen.ScriptFlush}
	return inTurn(r, length, kinds, minGap, maxGap, true, func(f loadgen.Fault) []loadgen.Fault {
		if f.Kind == loadgen.ScriptFlush {
			f.For = 0
			return []loadgen.Fault{f}
		}
		// A Redlock works without two of five nodes. Without three, its clients must
		// get errors.
		var all []loadgen.Fault
		for _, node := range r.Perm(servers)[:1+r.IntN(servers/2+1)] {
			f.Node = node + 1
			all = append(all, f)
		}
		return all
	})
}

// clientFaults plans the faults of the clients of a run.
func clientFaults(seed uint64, length time.Duration, l loadgen.Lock) []loadgen.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := []loadgen.FaultKind{loadgen.Crash, loadgen.Partition, loadgen.DropReplies, loadgen.Slow, loadgen.Greedy}
	if l.Fence {
		// A holder that sleeps past its lease may write when it wakes up. A lock cannot
		// prevent that, but a fence can.
		kinds = append(kinds, loadgen.Freeze)
	}
	return inTurn(r, length, kinds, minGap/2, maxGap/3, false, func(f loadgen.Fault) []loadgen.Fault {
		f.Clients = 1 + r.IntN(2)
		if f.Kind == loadgen.Slow {
			f.Delay = uniform(r, 5*time.Millisecond, 80*time.Millisecond)
			f.Jitter = f.Delay / 2
		}
		return []loadgen.Fault{f}
	})
}

// inTurn returns faults at random distances between low and high, of each kind in turn. With
// alone, a distance begins at the end of a fault. Complete returns the same fault of all that
// it affects.
func inTurn(r *rand.Rand, length time.Duration, kinds []loadgen.FaultKind, low, high time.Duration, alone bool, complete func(loadgen.Fault) []loadgen.Fault) []loadgen.Fault {
	var all []loadgen.Fault
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	at := firstFault
	for n := 0; ; n++ {
		group := complete(loadgen.Fault{At: at, Kind: kinds[n%len(kinds)], For: uniform(r, minLength, maxLength)})
		if at+group[0].For > length-recoveryTime {
			return all
		}
		all = append(all, group...)
		if at += uniform(r, low, high); alone {
			at += group[0].For
		}
	}
}

// faults plans all faults of a run.
func faults(seed uint64, length time.Duration, l loadgen.Lock) []loadgen.Fault {
	all := append(clientFaults(seed, length, l), serverFaults(seed, length, servers(l))...)
	slices.SortStableFunc(all, func(a, b loadgen.Fault) int { return int(a.At - b.At) })
	return all
}

func uniform(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}
