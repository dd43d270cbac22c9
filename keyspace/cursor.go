package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// cursor is a way through the keyspace by SCAN: through all of it, or through
// the keys of one glob.
type cursor struct {
	glob    string // "" = all keys
	keys    int64  // in the keyspace when the walk began
	pos     uint64
	scanned int64 // keys visited
	atEnd   bool  // SCAN has come to its end
	gaveUp  bool  // it would not, and was given up
}

// A walk is given up when it has visited this many times the keys there were,
// and some: a writer that adds keys as fast as we walk would keep us walking.
const (
	maxRevisits  = 4
	revisitSlack = 10_000
)

// done reports whether the walk is over.
func (c *cursor) done() bool { return c.atEnd || c.gaveUp }

// accept goes on to what a page of so many keys has brought, and returns the names
// on it, and how many of the keys that were there when the walk began it has
// visited: none twice, and in the end all.
func (c *cursor) accept(page *redis.ScanCmd, count int64) (names []string, visited int64, err error) {
	names, next, err := page.Result()
	if err != nil {
		return nil, 0, fmt.Errorf("scan keys: %w", err)
	}
	c.pos = next
	return names, c.advance(count), nil
}

// advance books a page of so many keys.
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

// cursors is where the walks of a pass are.
type cursors struct {
	all     []cursor
	count   int64 // COUNT of the next pages
	visited int64 // keys, by all walks
}

// clone returns a turn that goes on from where this one is.
func (cs cursors) clone() cursors {
	cs.all = slices.Clone(cs.all)
	return cs
}

// done reports whether all walks are over.
func (cs cursors) done() bool {
	return !slices.ContainsFunc(cs.all, func(c cursor) bool { return !c.done() })
}

// sendPages takes the walks so many pages further, or to their end, and hands out the
// names on them, not too many at once.
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

// nextPage takes each walk that is not over a page further, fits the size of the next
// to what these took the server, and returns the names on them.
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

// nextCount fits COUNT to what a page took the server, by the server's clock.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(pageTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
}
