package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// walk is a way through the keyspace by SCAN: through all of it, or through
// the keys of one glob.
type walk struct {
	glob    string // "" = all keys
	keys    int64  // in the keyspace when the walk began
	cursor  uint64
	scanned int64 // keys visited
	ended   bool  // SCAN has come to its end
	endless bool  // it would not, and was given up
}

// A walk is given up when it has visited this many times the keys there were,
// and some: a writer that adds keys as fast as we walk would keep us walking.
const (
	maxRounds  = 4
	roundSlack = 10_000
)

// done reports whether the walk is over.
func (w *walk) done() bool { return w.ended || w.endless }

// ask queues the SCAN of the next page; nil if there is none.
func (w *walk) ask(ctx context.Context, p redis.Pipeliner, count int64) *redis.ScanCmd {
	if w.done() {
		return nil
	}
	return p.Scan(ctx, w.cursor, w.glob, count)
}

// take books the page of so many keys that was asked for, and returns the names
// on it, and how many of the keys that were there when the walk began it has
// visited: none twice, and in the end all.
func (w *walk) take(asked *redis.ScanCmd, count int64) (names []string, visited int64, err error) {
	if asked == nil {
		return nil, 0, nil
	}
	names, cursor, err := asked.Result()
	if err != nil {
		return nil, 0, fmt.Errorf("scan keys: %w", err)
	}
	w.cursor = cursor
	return names, w.advance(count), nil
}

// advance books a page of so many keys.
func (w *walk) advance(count int64) int64 {
	before := min(w.scanned, w.keys)
	w.scanned += count
	w.ended = w.cursor == 0
	w.endless = !w.ended && w.keys > 0 && w.scanned > maxRounds*w.keys+roundSlack
	if w.done() {
		return w.keys - before
	}
	return min(w.scanned, w.keys) - before
}
