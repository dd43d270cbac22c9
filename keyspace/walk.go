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

// turn is where the walks of a pass are, and what they came by at the last step.
type turn struct {
	walks   []walk
	count   int64    // COUNT of the next pages
	names   []string // on the last ones
	visited int64    // keys, by all walks, at the last step
}

// walked reports whether all walks are over.
func (t turn) walked() bool {
	return !slices.ContainsFunc(t.walks, func(w walk) bool { return !w.done() })
}

// over returns where the walks are after so many pages more, or after their end.
func (t turn) over(ctx context.Context, l *link, pages int) (turn, error) {
	next := turn{walks: slices.Clone(t.walks), count: t.count}
	for ; pages > 0 && !next.walked(); pages-- {
		if err := next.page(ctx, l); err != nil {
			return turn{}, err
		}
	}
	return next, nil
}

// page takes each walk that is not over a page further, and fits the size of the
// next to what these took the server.
func (t *turn) page(ctx context.Context, l *link) error {
	asked := make([]*redis.ScanCmd, len(t.walks))
	turned := 0
	err := l.ask(ctx, "scan keys", func(pipe redis.Pipeliner) {
		for i, w := range t.walks {
			if !w.done() {
				asked[i] = pipe.Scan(ctx, w.cursor, w.glob, t.count)
				turned++
			}
		}
	})
	if err != nil {
		return err
	}
	for i, page := range asked {
		if page == nil {
			continue
		}
		names, visited, err := t.walks[i].take(page, t.count)
		if err != nil {
			return err
		}
		t.names = append(t.names, names...)
		t.visited += visited
	}
	t.count = nextCount(t.count, l.took/time.Duration(turned))
	return nil
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
