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

// kindSet lists the locks that run at the same time on one server and on five servers.
type kindSet struct {
	oneServer, fiveServers []loadgen.Lock
	hold                   loadgen.Dist // time in the critical section
}

// allKinds returns all sound kinds. Some holds are longer than the renewal interval.
func allKinds() kindSet {
	return kindSet{
		hold: loadgen.Bimodal(4*time.Millisecond, 2*time.Second, 0.02),
		oneServer: []loadgen.Lock{
			{Kind: loadgen.Mutex, TTL: ttl},
			{Kind: loadgen.Mutex, TTL: ttl, Fence: true},
			{Kind: loadgen.Reentrant, TTL: ttl},
			{Kind: loadgen.RW, TTL: ttl},
			{Kind: loadgen.Fair, TTL: ttl, Fence: true},
			{Kind: loadgen.Semaphore, TTL: ttl, Permits: 2},
			{Kind: loadgen.All, TTL: ttl, KeysPerHold: 2},
		},
		fiveServers: []loadgen.Lock{
			{Kind: loadgen.Redlock, TTL: ttl},
			{Kind: loadgen.Redlock, TTL: ttl, Fence: true},
		},
	}
}

// scenario returns the load of the clients of one kind in a round.
func scenario(l loadgen.Lock, hold loadgen.Dist, seed uint64, length time.Duration) loadgen.Scenario {
	s := loadgen.Scenario{
		Lock: l, Clients: 10, Keys: loadgen.Keys{N: 6},
		Hold: hold, Think: loadgen.Exp(10 * time.Millisecond), Patience: 2 * ttl,
		Faults: clientFaults(seed, length, l), Seed: seed, Duration: length,
	}
	switch l.Kind {
	case loadgen.RW:
		s.Reads = 0.5
	case loadgen.Reentrant:
		s.Depth = 2
	}
	return s
}

// kindRun is the run of one lock in one round.
type kindRun struct {
	run     *loadgen.Run
	log     *incidentLog
	history oracle.History
}

// runRound runs a round and adds its results to the tally. All choices depend on the
// seed.
func runRound(ctx context.Context, all kindSet, seed uint64, length time.Duration, sum *tally) error {
	before := runtime.NumGoroutine()
	var testbeds []*testbed
	defer func() {
		for _, t := range testbeds {
			_ = t.close()
		}
	}()
	var running sync.WaitGroup
	errs := make(chan error, 2)
	for servers, locks := range map[int][]loadgen.Lock{1: all.oneServer, 5: all.fiveServers} {
		t, err := openTestbed(ctx, servers)
		if err != nil {
			return err
		}
		testbeds = append(testbeds, t)
		running.Go(func() { errs <- runKinds(ctx, t, locks, all.hold, seed+uint64(servers)<<32, length, sum) })
	}
	running.Wait()
	for range testbeds {
		if err := <-errs; err != nil {
			return err
		}
	}
	for _, t := range testbeds {
		if err := t.close(); err != nil {
			return err
		}
	}
	testbeds = nil
	sum.endRound(before)
	return nil
}

// runKinds runs the kinds of one testbed in a round.
func runKinds(ctx context.Context, t *testbed, locks []loadgen.Lock, hold loadgen.Dist, seed uint64, length time.Duration, sum *tally) error {
	var runs []*kindRun
	var logs []*incidentLog
	defer func() {
		for _, c := range runs {
			_ = c.run.Close()
		}
	}()
	for i, l := range locks {
		run, err := loadgen.New(t.servers(), scenario(l, hold, seed+uint64(i), length))
		if err != nil {
			return err
		}
		c := &kindRun{run: run, log: newIncidentLog(len(t.clients))}
		if l.Kind != loadgen.Redlock {
			c.log = newIncidentLog(1)
		}
		run.Record(&c.history)
		run.Listen(c.log.onEvent)
		if err := run.Start(); err != nil {
			return err
		}
		runs, logs = append(runs, c), append(logs, c.log)
	}
	began := time.Now()
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { t.watchStalls(watched, logs) })
	err := t.injectAll(ctx, serverFaults(seed, length, len(t.clients)), logs)
	for _, c := range runs {
		select {
		case <-c.run.Done():
		case <-ctx.Done():
		}
		err = errors.Join(err, c.run.Close())
	}
	unwatch()
	watching.Wait()
	for _, c := range runs {
		sum.add(c, began)
	}
	if err != nil {
		return fmt.Errorf("with seed %d: %w", seed, err)
	}
	if err := t.closeClients(); err != nil {
		return err
	}
	return sum.countLeftovers(ctx, t)
}
