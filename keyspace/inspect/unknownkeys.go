package inspect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reported keys that are not locks are ignored for a while.
const (
	ignoreFor  = 10 * time.Second
	maxIgnored = 10_000

	maxUnknown = 512 // unknown keys that are read in one cycle
)

// worthChecking reports whether an unknown key should be read.
func (w *Watcher) worthChecking(key string) bool {
	if w.scanner.index.isCompanion(key) || !w.scanner.selects(key) || w.tracking.allKeys && !w.tracking.covers(key) {
		return false
	}
	if at, known := w.locks.ignored[key]; known {
		if time.Since(at) < ignoreFor {
			return false
		}
		delete(w.locks.ignored, key)
	}
	if len(w.locks.ignored) > maxIgnored {
		clear(w.locks.ignored)
	}
	return true
}

// fetchTypes returns the unknown keys that a format can match, with their types. It
// checks a limited number of keys, so that many changed keys that are not locks do not
// delay the locks. A pass finds the others.
func (w *Watcher) fetchTypes(ctx context.Context, keys []string) ([]keyRef, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = keys[:min(len(keys), maxUnknown)]
	types := make([]*redis.StatusCmd, len(keys))
	err := w.reader.conn.pipelined(ctx, "ask for types", func(p redis.Pipeliner) {
		for i, key := range keys {
			types[i] = p.Type(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	var refs []keyRef
	for i, key := range keys {
		switch typ := types[i].Val(); {
		case types[i].Err() != nil, typ == "none": // gone, but it may come back
		case w.scanner.index.needOf(key, typ) == needNone:
			w.locks.ignored[key] = time.Now()
		default:
			refs = append(refs, keyRef{key: key, typ: typ})
		}
	}
	return refs, nil
}
