package main

import (
	"context"
	"sync"
	"time"
)

// A machine that is busy with other things may keep servers, or all of us, from
// running for as long as a fault would. That has to be told from a lock's flaw.
const (
	beat       = 20 * time.Millisecond
	longPause  = ttl / 6  // of this process
	longAnswer = ttl / 50 // of a server: what a node of a Redlock is given
)

// watch notes in the ledgers when the machine stalls, until ctx ends.
func (g *ground) watch(ctx context.Context, ledgers []*ledger) {
	var watching sync.WaitGroup
	defer watching.Wait()
	note := func(from time.Time, nodes int) {
		for _, l := range ledgers {
			l.stall(from, time.Now(), nodes)
		}
	}
	for _, rdb := range g.clients {
		watching.Go(func() {
			for ctx.Err() == nil {
				sent, struck := time.Now(), g.striking.Load()
				err := rdb.Ping(ctx).Err()
				if err == nil && !struck && !g.striking.Load() && time.Since(sent) > longAnswer {
					note(sent, 1)
				}
				sleep(ctx, beat)
			}
		})
	}
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		sleep(ctx, beat)
		if time.Since(last) > longPause {
			note(last, len(g.clients))
		}
	}
}
