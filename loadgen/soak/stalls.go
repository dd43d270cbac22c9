package main

import (
	"context"
	"sync"
	"time"
)

// On a busy machine, servers or this process may not run for as long as a fault lasts.
// The soak must distinguish this from a defect of a lock.
const (
	pingInterval = 20 * time.Millisecond
	longPause    = ttl / 6  // of this process
	longAnswer   = ttl / 50 // of a server: the node timeout of a Redlock
)

// watchStalls records the stalls of the machine in the logs, until ctx ends.
func (t *testbed) watchStalls(ctx context.Context, logs []*incidentLog) {
	var watching sync.WaitGroup
	defer watching.Wait()
	note := func(from time.Time, nodes int) {
		for _, l := range logs {
			l.stall(from, time.Now(), nodes)
		}
	}
	for _, rdb := range t.clients {
		watching.Go(func() {
			for ctx.Err() == nil {
				sent, faulty := time.Now(), t.faultActive.Load()
				err := rdb.Ping(ctx).Err()
				if err == nil && !faulty && !t.faultActive.Load() && time.Since(sent) > longAnswer {
					note(sent, 1)
				}
				sleep(ctx, pingInterval)
			}
		})
	}
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		sleep(ctx, pingInterval)
		if time.Since(last) > longPause {
			note(last, len(t.clients))
		}
	}
}
