package contest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace/inspect"
)

// hidden is the number of locks in B4.
const hidden = 1500

// b4 measures how long it takes to find all locks among many keys, and compares
// it with a plain SCAN of the same keys.
func b4(ctx context.Context, a *Arena, size Size) (Result, error) {
	keys, rounds := 1_000_000, 5
	if size == Quick {
		keys, rounds = 200_000, 3
	}
	result := Result{
		Title: "B4: locks among other keys",
		About: fmt.Sprintf("%d locks of six libraries, under names that say nothing, among %d sessions, pages, counters, hashes and lists. Beside it a bare SCAN COUNT 1000 of the same keyspace, which looks at no value.", hidden, keys),
	}
	if err := a.haystack(ctx, keys, hidden); err != nil {
		return result, err
	}
	h, err := a.hunt(ctx, rounds)
	if err != nil {
		return result, fmt.Errorf("B4: %w", err)
	}
	gentle, err := a.gentle(ctx)
	if err != nil {
		return result, fmt.Errorf("B4: %w", err)
	}
	v := Verdict{name: fmt.Sprintf("B4 keys=%d", keys)}
	v.atLeast("found", float64(h.found), hidden)
	v.atMost("scan/bare", middle(h.full), 2)
	v.atMost("match/bare", middle(h.match), 1.2)
	v.atMost("first-ms", middle(h.first), 100)
	v.atMost("budget-s", gentle.took.Seconds(), 10*float64(keys)/1_000_000)
	v.atMost("probe-ms", gentle.harm(), 1)
	result.Verdicts = []Verdict{v}
	result.Tables = []Table{h.table(), gentle.table()}
	return result, nil
}

// hunt holds the results of the rounds of B4. The figures are their medians.
type hunt struct {
	bare, scan, match, full, first []float64
	found                          int
}

func (a *Arena) hunt(ctx context.Context, rounds int) (h hunt, err error) {
	for range rounds {
		bare, err := a.bareScan(ctx)
		if err != nil {
			return h, err
		}
		all, err := a.find(ctx, nil)
		if err != nil {
			return h, err
		}
		some, err := a.find(ctx, nil, "lock:*")
		if err != nil {
			return h, err
		}
		h.found = len(all.snap.Locks)
		h.bare = append(h.bare, bare.Seconds())
		h.scan = append(h.scan, all.took.Seconds())
		h.full = append(h.full, all.took.Seconds()/bare.Seconds())
		h.match = append(h.match, some.took.Seconds()/bare.Seconds())
		h.first = append(h.first, float64(all.first)/float64(time.Millisecond))
	}
	return h, nil
}

func (h hunt) table() Table {
	return Table{
		Title:   "as fast as it goes",
		Columns: []string{"s", "times a bare SCAN", "first lock, ms"},
		Rows: [][]string{
			{"a bare SCAN COUNT 1000", short(middle(h.bare)), "1", ""},
			{"--budget full", short(middle(h.scan)), short(middle(h.full)), short(middle(h.first))},
			{"--budget full --match 'lock:*'", "", short(middle(h.match)), ""},
		},
	}
}

// courtesy is the cost of a scan with the default budget for another client.
type courtesy struct {
	took         time.Duration
	busy         time.Duration
	alone, along float64 // p99 of a probe, in ms, without and during the scan
}

// gentle scans with the default budget while another client uses the server.
func (a *Arena) gentle(ctx context.Context) (c courtesy, err error) {
	if c.alone, err = a.probe(ctx, func() error { return pause(ctx, 2*time.Second) }); err != nil {
		return c, err
	}
	c.along, err = a.probe(ctx, func() error {
		s, err := a.find(ctx, inspect.NewBudget(inspect.DefaultShare))
		c.took, c.busy = s.took, s.snap.Cost.ServerTime
		return err
	})
	return c, err
}

// harm returns by how much the p99 of the probe rises, in ms.
func (c courtesy) harm() float64 { return max(0, c.along-c.alone) }

func (c courtesy) table() Table {
	return Table{
		Title:   fmt.Sprintf("at the default budget of %.0f%%", 100*inspect.DefaultShare),
		Columns: []string{"s", "of it the server was busy, s", "another client's p99, ms", "its p99 alone, ms"},
		Rows:    [][]string{{"locktop", short(c.took.Seconds()), short(c.busy.Seconds()), short(c.along), short(c.alone)}},
	}
}

// probe sends 1,000 GETs per second until f returns. Each GET is sent when it
// is due, even if the one before has no reply. It returns the p99 of the times
// from when a GET was due to its reply.
func (a *Arena) probe(ctx context.Context, f func() error) (p99 float64, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: a.server.Addr(), PoolSize: 1})
	defer rdb.Close()
	over := make(chan error, 1)
	go func() { over <- f() }()
	var took []time.Duration
	due := time.Now()
	for {
		select {
		case err := <-over:
			slices.Sort(took)
			return quantile(took, 0.99), err
		case <-time.After(time.Until(due)):
		}
		if err := rdb.Get(ctx, "nothing").Err(); err != nil && err != redis.Nil {
			return 0, fmt.Errorf("probe: %w", err)
		}
		took = append(took, time.Since(due))
		due = due.Add(time.Millisecond)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
