package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// ttl is the time to live of all leases.
const ttl = 3 * time.Second

// lockSet lists the locks that run at the same time, each on its own servers.
type lockSet struct {
	locks []loadgen.Lock
	hold  loadgen.Dist // time in the critical section
}

// allKinds returns all sound kinds. Some holds are longer than the renewal interval.
func allKinds() lockSet {
	return lockSet{
		hold: loadgen.Bimodal(4*time.Millisecond, 2*time.Second, 0.02),
		locks: []loadgen.Lock{
			{Kind: loadgen.Mutex, TTL: ttl},
			{Kind: loadgen.Mutex, TTL: ttl, Fence: true},
			{Kind: loadgen.Reentrant, TTL: ttl},
			{Kind: loadgen.RW, TTL: ttl},
			{Kind: loadgen.Fair, TTL: ttl, Fence: true},
			{Kind: loadgen.Semaphore, TTL: ttl, Permits: 2},
			{Kind: loadgen.All, TTL: ttl, KeysPerHold: 2},
			{Kind: loadgen.Redlock, TTL: ttl},
			{Kind: loadgen.Redlock, TTL: ttl, Fence: true},
		},
	}
}

// servers returns the number of servers of a lock.
func servers(l loadgen.Lock) int {
	if l.Kind.Quorum() {
		return 5
	}
	return 1
}

// scenario returns the load on one lock in a round.
func scenario(l loadgen.Lock, hold loadgen.Dist, seed uint64, length time.Duration) loadgen.Scenario {
	s := loadgen.Scenario{
		Lock: l, Clients: 10, Keys: loadgen.Keys{N: 6},
		Hold: hold, Think: loadgen.Exp(10 * time.Millisecond), Patience: 2 * ttl,
		Faults: faults(seed, length, l), Seed: seed, Duration: length,
	}
	switch l.Kind {
	case loadgen.RW:
		s.Reads = 0.5
	case loadgen.Reentrant:
		s.Depth = 2
	}
	return s
}

// runRound runs a round and adds its results to the tally. All choices depend on the
// seed.
func runRound(ctx context.Context, all lockSet, seed uint64, length time.Duration, sum *tally) error {
	before := runtime.NumGoroutine()
	errs := make([]error, len(all.locks))
	var running sync.WaitGroup
	for i, l := range all.locks {
		running.Go(func() {
			errs[i] = runLock(ctx, servers(l), scenario(l, all.hold, seed+uint64(i)<<32, length), sum)
		})
	}
	running.Wait()
	sum.endRound(before)
	return errors.Join(errs...)
}

// runLock runs the load on one lock.
func runLock(ctx context.Context, servers int, s loadgen.Scenario, sum *tally) (err error) {
	t, err := openTestbed(ctx, servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	run, err := loadgen.New(t.servers(), s)
	if err != nil {
		return err
	}
	var history oracle.History
	run.Record(&history)
	if err := run.Start(); err != nil {
		return err
	}
	select {
	case <-run.Done():
	case <-ctx.Done():
	}
	if err := errors.Join(run.Close(), t.closeClients()); err != nil {
		return fmt.Errorf("%s: %w", s.Lock, err)
	}
	sum.add(s.Lock, run.Metrics(), history.Prove(proofTimeout))
	return sum.countLeftovers(ctx, t)
}
