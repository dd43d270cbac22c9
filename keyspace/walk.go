package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// take goes on to what a page of so many keys has brought, and returns the names
// on it, and how many of the keys that were there when the walk began it has
// visited: none twice, and in the end all.
func (w *walk) take(page *redis.ScanCmd, count int64) (names []string, visited int64, err error) {
	names, cursor, err := page.Result()
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

// turn is where the walks of a pass are.
type turn struct {
	walks   []walk
	count   int64 // COUNT of the next pages
	visited int64 // keys, by all walks
}

// copy returns a turn that goes on from where this one is.
func (t turn) copy() turn {
	t.walks = slices.Clone(t.walks)
	return t
}

// walked reports whether all walks are over.
func (t turn) walked() bool {
	return !slices.ContainsFunc(t.walks, func(w walk) bool { return !w.done() })
}

// pages takes the walks so many pages further, or to their end, and hands out the
// names on them, not too many at once.
func (t *turn) pages(ctx context.Context, l *link, n int, names chan<- []string) error {
	for ; n > 0 && !t.walked(); n-- {
		page, err := t.page(ctx, l)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(page, pinch) {
			select {
			case names <- some:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// page takes each walk that is not over a page further, fits the size of the next
// to what these took the server, and returns the names on them.
func (t *turn) page(ctx context.Context, l *link) (names []string, err error) {
	asked := make([]*redis.ScanCmd, len(t.walks))
	turned := 0
	err = l.ask(ctx, "scan keys", func(pipe redis.Pipeliner) {
		for i, w := range t.walks {
			if !w.done() {
				asked[i] = pipe.Scan(ctx, w.cursor, w.glob, t.count)
				turned++
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, page := range asked {
		if page == nil {
			continue
		}
		some, visited, err := t.walks[i].take(page, t.count)
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
		t.visited += visited
	}
	t.count = nextCount(t.count, l.took/time.Duration(turned))
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
