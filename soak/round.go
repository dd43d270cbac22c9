package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"locktop/loadgen"
)

// ttl is that of all leases.
const ttl = 3 * time.Second

// lineup are the kinds that play beside each other: those of one server, and
// those of five.
type lineup struct {
	one, five []loadgen.Lock
	hold      loadgen.Dist // time inside
}

// everything are all sound kinds. Now and then a client works for longer than a
// renewal takes to be due.
func everything() lineup {
	return lineup{
		hold: loadgen.Bimodal(4*time.Millisecond, 2*time.Second, 0.02),
		one: []loadgen.Lock{
			{Kind: loadgen.Mutex, TTL: ttl},
			{Kind: loadgen.Mutex, TTL: ttl, Fence: true},
			{Kind: loadgen.Reentrant, TTL: ttl},
			{Kind: loadgen.RW, TTL: ttl},
			{Kind: loadgen.Fair, TTL: ttl, Fence: true},
		},
		five: []loadgen.Lock{
			{Kind: loadgen.Redlock, TTL: ttl},
			{Kind: loadgen.Redlock, TTL: ttl, Fence: true},
		},
	}
}

// scenario is what the clients of a lock do in a round.
func scenario(l loadgen.Lock, hold loadgen.Dist, seed uint64, length time.Duration) loadgen.Scenario {
	s := loadgen.Scenario{
		Lock: l, Clients: 10, Keys: loadgen.Keys{N: 6},
		Hold: hold, Think: loadgen.Exp(10 * time.Millisecond), Patience: 2 * ttl,
		Faults: troubles(seed, length, l), Seed: seed, Duration: length,
	}
	switch l.Kind {
	case loadgen.RW:
		s.Reads = 0.5
	case loadgen.Reentrant:
		s.Depth = 2
	}
	return s
}

// course is one kind in one round.
type course struct {
	run     *loadgen.Run
	ledger  *ledger
	history loadgen.History
}

// play plays a round, and adds what it showed to the tally. All choices follow
// from the seed.
func play(ctx context.Context, all lineup, seed uint64, length time.Duration, sum *tally) error {
	before := runtime.NumGoroutine()
	var grounds []*ground
	defer func() {
		for _, g := range grounds {
			_ = g.close()
		}
	}()
	var playing sync.WaitGroup
	errs := make(chan error, 2)
	for servers, locks := range map[int][]loadgen.Lock{1: all.one, 5: all.five} {
		g, err := openGround(ctx, servers)
		if err != nil {
			return err
		}
		grounds = append(grounds, g)
		playing.Go(func() { errs <- playOn(ctx, g, locks, all.hold, seed+uint64(servers)<<32, length, sum) })
	}
	playing.Wait()
	for range grounds {
		if err := <-errs; err != nil {
			return err
		}
	}
	for _, g := range grounds {
		if err := g.close(); err != nil {
			return err
		}
	}
	grounds = nil
	sum.rest(before)
	return nil
}

// playOn plays the part of a round that takes place on one ground.
func playOn(ctx context.Context, g *ground, locks []loadgen.Lock, hold loadgen.Dist, seed uint64, length time.Duration, sum *tally) error {
	var courses []*course
	var ledgers []*ledger
	defer func() {
		for _, c := range courses {
			_ = c.run.Close()
		}
	}()
	for i, l := range locks {
		run, err := loadgen.New(g.servers(), scenario(l, hold, seed+uint64(i), length))
		if err != nil {
			return err
		}
		c := &course{run: run, ledger: newLedger(len(g.clients))}
		if l.Kind != loadgen.Redlock {
			c.ledger = newLedger(1)
		}
		run.Record(&c.history)
		run.Listen(c.ledger.hear)
		if err := run.Start(); err != nil {
			return err
		}
		courses, ledgers = append(courses, c), append(ledgers, c.ledger)
	}
	began := time.Now()
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(watched, ledgers) })
	err := g.strike(ctx, blows(seed, length, len(g.clients)), ledgers)
	for _, c := range courses {
		select {
		case <-c.run.Done():
		case <-ctx.Done():
		}
		err = errors.Join(err, c.run.Close())
	}
	unwatch()
	watching.Wait()
	for _, c := range courses {
		sum.add(c, began)
	}
	if err != nil {
		return fmt.Errorf("with seed %d: %w", seed, err)
	}
	if err := g.hangUp(); err != nil {
		return err
	}
	return sum.inspect(ctx, g)
}
