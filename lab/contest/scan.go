package contest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// lockCount is the number of locks in B4.
const lockCount = 1500

// scanCost measures how long it takes to find all locks among many keys, and compares
// it with a plain SCAN of the same keys.
func scanCost(ctx context.Context, t *Testbed, size Size) (Result, error) {
	keys, rounds := 1_000_000, 5
	if size == Quick {
		keys, rounds = 200_000, 3
	}
	result := Result{
		Title: "B4: locks among other keys",
		About: fmt.Sprintf("%d locks of six libraries, under names that say nothing, among %d sessions, pages, counters, hashes and lists. Beside it a bare SCAN COUNT 1000 of the same keyspace, which looks at no value.", lockCount, keys),
	}
	if err := t.fill(ctx, keys, lockCount); err != nil {
		return result, err
	}
	h, err := t.scanRounds(ctx, rounds)
	if err != nil {
		return result, fmt.Errorf("B4: %w", err)
	}
	budgeted, err := t.scanWithBudget(ctx)
	if err != nil {
		return result, fmt.Errorf("B4: %w", err)
	}
	v := Verdict{Name: fmt.Sprintf("B4 keys=%d", keys)}
	v.atLeast("found", float64(h.found), lockCount)
	v.atMost("scan/bare", median(h.full), 3)
	v.atMost("match/bare", median(h.match), 1.2)
	v.atMost("first-ms", median(h.first), 100)
	v.atMost("budget-s", budgeted.took.Seconds(), 10*float64(keys)/1_000_000)
	v.atMost("probe-ms", budgeted.addedLatency(), 1)
	result.Verdicts = []Verdict{v}
	result.Tables = []Table{h.table(), budgeted.table()}
	return result, nil
}

// scanFigures holds the results of the rounds of B4. The figures are their medians.
type scanFigures struct {
	bare, scan, match, full, first []float64
	found                          int
}

func (t *Testbed) scanRounds(ctx context.Context, rounds int) (h scanFigures, err error) {
	for range rounds {
		bare, err := t.bareScan(ctx)
		if err != nil {
			return h, err
		}
		all, err := t.find(ctx, nil)
		if err != nil {
			return h, err
		}
		some, err := t.find(ctx, nil, "lock:*")
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

func (h scanFigures) table() Table {
	return Table{
		Title:   "as fast as it goes",
		Columns: []string{"s", "times a bare SCAN", "first lock, ms"},
		Rows: [][]string{
			{"a bare SCAN COUNT 1000", short(median(h.bare)), "1", ""},
			{"--budget full", short(median(h.scan)), short(median(h.full)), short(median(h.first))},
			{"--budget full --match 'lock:*'", "", short(median(h.match)), ""},
		},
	}
}

// budgetFigures is the cost of a scan with the default budget for another client.
type budgetFigures struct {
	took         time.Duration
	busy         time.Duration
	alone, along float64 // p99 of a probe, in ms, without and during the scan
}

// scanWithBudget scans with the default budget while another client uses the server.
func (t *Testbed) scanWithBudget(ctx context.Context) (c budgetFigures, err error) {
	if c.alone, err = t.probe(ctx, func() error { return pause(ctx, 2*time.Second) }); err != nil {
		return c, err
	}
	c.along, err = t.probe(ctx, func() error {
		s, err := t.find(ctx, inspect.NewBudget(inspect.DefaultShare))
		c.took, c.busy = s.took, s.snap.Cost.ServerTime
		return err
	})
	return c, err
}

// addedLatency returns by how much the p99 of the probe rises, in ms.
func (c budgetFigures) addedLatency() float64 { return max(0, c.along-c.alone) }

func (c budgetFigures) table() Table {
	return Table{
		Title:   fmt.Sprintf("at the default budget of %.0f%%", 100*inspect.DefaultShare),
		Columns: []string{"s", "of it the server was busy, s", "another client's p99, ms", "its p99 alone, ms"},
		Rows:    [][]string{{"locktop", short(c.took.Seconds()), short(c.busy.Seconds()), short(c.along), short(c.alone)}},
	}
}

// probe sends 1,000 GETs per second until f returns. Each GET is sent when it
// is due, even if the one before has no reply. It returns the p99 of the times
// from when a GET was due to its reply.
func (t *Testbed) probe(ctx context.Context, f func() error) (p99 float64, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: t.server.Addr(), PoolSize: 1})
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

// scanGrowth measures how the cost of a scan grows with the number of keys and of
// locks.
func scanGrowth(ctx context.Context, t *Testbed, size Size) (Result, error) {
	keys, locks := []int{10_000, 100_000, 1_000_000}, []int{100, 1000, 10_000, 100_000}
	if size == Quick {
		keys, locks = keys[:2], locks[:3]
	}
	result := Result{
		Title: "B9: how the cost of looking grows",
		About: "One look at the whole keyspace, as fast as it goes. The exponent is that of the growth from the row before: 1 is as fast as the number itself.",
	}
	byKeys, err := t.curve(ctx, "keys, with 100 locks among them", keys, func(n int) (int, int) { return n, 100 })
	if err != nil {
		return result, fmt.Errorf("B9: %w", err)
	}
	byLocks, err := t.curve(ctx, "locks, among as many other keys and 10,000 more", locks, func(n int) (int, int) { return n + 10_000, n })
	if err != nil {
		return result, fmt.Errorf("B9: %w", err)
	}
	v := Verdict{Name: "B9"}
	v.atMost("keys-exponent", byKeys.steepest, 1.2)
	v.atMost("locks-exponent", byLocks.steepest, 1.2)
	result.Verdicts = []Verdict{v}
	result.Tables = []Table{byKeys.Table, byLocks.Table}
	return result, nil
}

// curve is a table of the costs of a scan at several sizes.
type curve struct {
	Table
	steepest float64 // exponent
}

func (t *Testbed) curve(ctx context.Context, title string, sizes []int, of func(n int) (keys, locks int)) (curve, error) {
	g := curve{Table: Table{Title: title, Columns: []string{"s", "commands", "server, s", "exponent"}}}
	var before float64
	for i, n := range sizes {
		keys, locks := of(n)
		if err := t.fill(ctx, keys, locks); err != nil {
			return g, err
		}
		var took []float64
		var last scanResult
		for range 3 {
			s, err := t.find(ctx, nil)
			if err != nil {
				return g, err
			}
			took, last = append(took, s.took.Seconds()), s
		}
		now, exponent := median(took), ""
		if i > 0 {
			e := math.Log(now/before) / math.Log(float64(n)/float64(sizes[i-1]))
			g.steepest, exponent = max(g.steepest, e), short(e)
		}
		before = now
		g.Rows = append(g.Rows, []string{fmt.Sprint(n), fmt.Sprintf("%.3f", now), fmt.Sprint(last.snap.Cost.Commands), fmt.Sprintf("%.3f", last.snap.Cost.ServerTime.Seconds()), exponent})
	}
	return g, nil
}

// fill sets keys ordinary keys of the usual types on the server, 70% of
// them strings and half of them with a TTL, and locks locks of six formats
// among them, under names without a meaning.
func (t *Testbed) fill(ctx context.Context, keys, locks int) error {
	if err := t.clear(ctx); err != nil {
		return err
	}
	p := t.rdb.Pipeline()
	for i := range keys {
		setOrdinary(ctx, p, i)
		if i < locks {
			setLock(ctx, p, i)
		}
		if p.Len() < 5000 && i < keys-1 {
			continue
		}
		if _, err := p.Exec(ctx); err != nil {
			return fmt.Errorf("fill the server: %w", err)
		}
	}
	return nil
}

// setOrdinary sets an ordinary key.
func setOrdinary(ctx context.Context, p redis.Pipeliner, i int) {
	ttl := time.Duration(i%2) * (time.Hour + time.Duration(i)*time.Millisecond)
	switch i % 10 {
	case 0, 1, 2:
		p.Set(ctx, fmt.Sprintf("session:%016x", uint64(i)*0x9e3779b97f4a7c15), fmt.Sprintf(`{"user":%d,"roles":["reader","writer"],"seen":1763680000}`, i), ttl)
	case 3, 4:
		p.Set(ctx, fmt.Sprintf("page:%d", i), strings.Repeat("<p>some text</p>", 16), ttl)
	case 5:
		p.Set(ctx, fmt.Sprintf("visits:%d", i), i, 0)
	case 6:
		p.Set(ctx, fmt.Sprintf("user:%d:name", i), fmt.Sprintf("name number %d", i), 0)
	case 7, 8:
		p.HSet(ctx, fmt.Sprintf("user:%d", i), "name", "Ann", "logins", i, "city", "Graz")
	default:
		p.RPush(ctx, fmt.Sprintf("feed:%d", i), "a", "b", i)
	}
}

// setLock sets a lock as one of six libraries does.
func setLock(ctx context.Context, p redis.Pipeliner, i int) {
	const ttl = time.Hour
	name := fmt.Sprintf("thing:%d", i)
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String()
	switch i % 6 {
	case 0: // redsync
		p.Set(ctx, name, fmt.Sprintf("qL3xN0b2Zf8dYw5tK%04dQ==", i%10_000), ttl)
	case 1: // bsm/redislock
		p.Set(ctx, name, fmt.Sprintf("Zk3_vN0b2Qf8dYw5t%04dA", i%10_000), ttl)
	case 2: // Redisson
		p.HSet(ctx, name, fmt.Sprintf("%s:%d", id, i), 1)
		p.PExpire(ctx, name, ttl)
	case 3: // Redisson, read/write
		p.HSet(ctx, name, "mode", "read", fmt.Sprintf("%s:%d", id, i), 1)
		p.PExpire(ctx, name, ttl)
	case 4: // an id and the time
		p.Set(ctx, name, fmt.Sprintf("%s:%d", id, 1_763_680_000_000+i), ttl)
	case 5: // DistributedLock for .NET
		p.Set(ctx, name, fmt.Sprintf("web-01_%d_%s", i, strings.ReplaceAll(id, "-", "")), ttl)
	}
}

// bareScan measures the cheapest way to see every key once.
func (t *Testbed) bareScan(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	_, err := t.stored(ctx)
	return time.Since(begin), err
}

// scanResult is the cost of finding the locks.
type scanResult struct {
	took  time.Duration
	first time.Duration // until the first lock was found
	snap  keyspace.Snapshot
}

// find scans for locks as locktop list does.
func (t *Testbed) find(ctx context.Context, pace *inspect.Budget, globs ...string) (scanResult, error) {
	var s scanResult
	begin := time.Now()
	snap, err := inspect.NewScanner(t.rdb, inspect.ScanOptions{
		Formats: formats.All(), Match: globs, Budget: pace,
		Progress: func(page keyspace.Snapshot) {
			if s.first == 0 && len(page.Locks) > 0 {
				s.first = time.Since(begin)
			}
		},
	}).Scan(ctx)
	s.took, s.snap = time.Since(begin), snap
	return s, err
}
