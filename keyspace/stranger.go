package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys that were reported and are no locks are not looked at again for a while.
const (
	dullFor  = 10 * time.Second
	dullKept = 10_000

	strangersMost = 512 // unknown keys that are looked at in one round
)

// promising reports whether an unknown key is worth a look.
func (w *Watcher) promising(key string) bool {
	if w.scanner.index.belongs(key) || !w.scanner.selects(key) || w.track.every && !w.track.covers(key) {
		return false
	}
	if at, known := w.dull[key]; known {
		if time.Since(at) < dullFor {
			return false
		}
		delete(w.dull, key)
	}
	if len(w.dull) > dullKept {
		clear(w.dull)
	}
	return true
}

// introduce asks for the types of unknown keys, and returns those that a format
// may take. It asks for no more than so many at a time: a storm of keys that are
// no locks is not to keep us from those that are. The walk finds the others.
func (w *Watcher) introduce(ctx context.Context, keys []string) ([]ref, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = keys[:min(len(keys), strangersMost)]
	types := make([]*redis.StatusCmd, len(keys))
	err := w.reader.ask(ctx, "ask for types", func(p redis.Pipeliner) {
		for i, key := range keys {
			types[i] = p.Type(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	var refs []ref
	for i, key := range keys {
		switch typ := types[i].Val(); {
		case types[i].Err() != nil, typ == "none": // gone already, and perhaps soon back
		case w.scanner.index.look(key, typ) == nothing:
			w.dull[key] = time.Now()
		default:
			refs = append(refs, ref{key: key, typ: typ})
		}
	}
	return refs, nil
}
