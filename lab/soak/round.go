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

// allKinds returns loads on all sound kinds. Some holds are longer than the renewal interval.
func allKinds() []loadgen.Scenario {
	all := []loadgen.Scenario{
		{Lock: loadgen.Lock{Kind: loadgen.Mutex}},
		{Lock: loadgen.Lock{Kind: loadgen.Mutex, Fence: true}},
		{Lock: loadgen.Lock{Kind: loadgen.Reentrant}, Depth: 2},
		{Lock: loadgen.Lock{Kind: loadgen.RW}, Reads: 0.5},
		{Lock: loadgen.Lock{Kind: loadgen.Fair, Fence: true}},
		{Lock: loadgen.Lock{Kind: loadgen.Semaphore, Permits: 2}},
		{Lock: loadgen.Lock{Kind: loadgen.All, KeysPerHold: 2}},
		{Lock: loadgen.Lock{Kind: loadgen.Redlock}},
		{Lock: loadgen.Lock{Kind: loadgen.Redlock, Fence: true}},
	}
	for i := range all {
		all[i].Lock.TTL, all[i].Hold = ttl, loadgen.Bimodal(4*time.Millisecond, 2*time.Second, 0.02)
	}
	return all
}

// servers returns the number of servers of a lock.
func servers(l loadgen.Lock) int {
	if l.Kind.Quorum() {
		return 5
	}
	return 1
}

// planned returns s with all that a round has to choose.
func planned(s loadgen.Scenario, seed uint64, length time.Duration) loadgen.Scenario {
	s.Clients, s.Keys, s.Think, s.Patience = 10, loadgen.Keys{N: 6}, loadgen.Exp(10*time.Millisecond), 2*ttl
	s.Faults, s.Seed, s.Duration = faults(seed, length, s.Lock), seed, length
	return s
}

// runRound runs a round and adds its results to the tally. All choices depend on the
// seed.
func runRound(ctx context.Context, all []loadgen.Scenario, seed uint64, length time.Duration, sum *tally) error {
	before := runtime.NumGoroutine()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, s := range all {
		running.Go(func() {
			errs[i] = runLock(ctx, planned(s, seed+uint64(i)<<32, length), sum)
		})
	}
	running.Wait()
	sum.endRound(before)
	return errors.Join(errs...)
}

// runLock runs the load on one lock.
func runLock(ctx context.Context, s loadgen.Scenario, sum *tally) (err error) {
	t, err := openTestbed(ctx, servers(s.Lock))
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
	sum.add(s.Lock, run.Metrics(), history.Prove())
	return sum.countLeftovers(ctx, t)
}
