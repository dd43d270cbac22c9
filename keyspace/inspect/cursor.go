package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// cursor is the position of a SCAN through the keyspace, or through the keys of one
// glob.
type cursor struct {
	glob    string // "" = all keys
	keys    int64  // keys in the keyspace at the start
	pos     uint64
	scanned int64 // keys visited
	atEnd   bool  // SCAN has returned cursor 0
	gaveUp  bool  // SCAN did not end and was given up
}

// A SCAN is given up after it has visited this many times the number of keys, plus a
// margin: a writer that adds keys as fast as they are scanned would never let it end.
const (
	maxRevisits  = 4
	revisitSlack = 10_000
)

// done reports whether the SCAN is over.
func (c *cursor) done() bool { return c.atEnd || c.gaveUp }

// accept moves the cursor past a page that was requested with COUNT count. It returns
// the names on the page and the number of keys that it adds to the progress: together
// they add up to the number of keys at the start.
func (c *cursor) accept(page *redis.ScanCmd, count int64) (names []string, visited int64, err error) {
	names, next, err := page.Result()
	if err != nil {
		return nil, 0, fmt.Errorf("scan keys: %w", err)
	}
	c.pos = next
	return names, c.advance(count), nil
}

// advance records a page.
func (c *cursor) advance(count int64) int64 {
	before := min(c.scanned, c.keys)
	c.scanned += count
	c.atEnd = c.pos == 0
	c.gaveUp = !c.atEnd && c.keys > 0 && c.scanned > maxRevisits*c.keys+revisitSlack
	if c.done() {
		return c.keys - before
	}
	return min(c.scanned, c.keys) - before
}

// cursors are the cursors of a pass, one for each glob.
type cursors struct {
	all     []cursor
	count   int64 // COUNT of the next page
	visited int64 // keys visited by all cursors
}

// clone returns a copy that can advance independently.
func (cs cursors) clone() cursors {
	cs.all = slices.Clone(cs.all)
	return cs
}

// done reports whether all cursors are done.
func (cs cursors) done() bool {
	return !slices.ContainsFunc(cs.all, func(c cursor) bool { return !c.done() })
}

// sendPages advances the cursors by n pages, or to their end, and sends the names to
// the channel in batches.
func (cs *cursors) sendPages(ctx context.Context, conn *meteredConn, n int, names chan<- []string) error {
	for ; n > 0 && !cs.done(); n-- {
		page, err := cs.nextPage(ctx, conn)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(page, probeBatch) {
			select {
			case names <- some:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// nextPage advances each cursor that is not done by one page, adapts COUNT to the time
// of the reply, and returns the names.
func (cs *cursors) nextPage(ctx context.Context, conn *meteredConn) (names []string, err error) {
	replies := make([]*redis.ScanCmd, len(cs.all))
	sent := 0
	err = conn.pipelined(ctx, "scan keys", func(pipe redis.Pipeliner) {
		for i, c := range cs.all {
			if !c.done() {
				replies[i] = pipe.Scan(ctx, c.pos, c.glob, cs.count)
				sent++
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		if reply == nil {
			continue
		}
		some, visited, err := cs.all[i].accept(reply, cs.count)
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
		cs.visited += visited
	}
	cs.count = nextCount(cs.count, conn.serverTime/time.Duration(sent))
	return names, nil
}

// nextCount adapts COUNT so that a page takes pageTime on the server.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(pageTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
}
