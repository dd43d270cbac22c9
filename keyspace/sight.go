package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Inspection is all that can be seen of one key.
type Inspection struct {
	Snapshot         // of this key alone: its locks are the one it is, or none
	Entries  []Entry // the key as it was read, if it is there, then what belongs to it
	Type     string  // what the server says; none = there is no such key
}

// Inspect looks at one key, without looking for others. A key that belongs to a lock
// (a queue, a fence …) is no lock itself. In a cluster the key is looked at on the
// node that has it.
func (s *Scanner) Inspect(ctx context.Context, key string) (Inspection, error) {
	r := s.reader()
	sight := Inspection{Snapshot: Snapshot{Complete: true, Server: Server{Addr: s.node}}}
	var kind *redis.StatusCmd
	err := r.ask(ctx, fmt.Sprintf("look at %q", key), func(p redis.Pipeliner) { kind = p.Type(ctx, key) })
	switch {
	case err == nil && redirected(kind.Err()):
		sight.Type = "none"
		sight.Complete = s.opts.Cluster == nil
		sight.Problems = []string{partOfCluster}
		if !sight.Complete {
			sight.Problems = []string{fmt.Sprintf("%s says that another node has the key, and that one did not answer", s.node)}
		}
	case err == nil:
		sight.Type, err = kind.Result()
	}
	sight.At = r.now
	if err != nil || sight.Type == "none" {
		return sight, err
	}
	if sight.Entries, err = r.entries(ctx, ref{key: key, typ: sight.Type}); err != nil {
		return sight, err
	}
	found, err := r.take(ctx, []ref{{key: key, typ: sight.Type}})
	sight.At, sight.Locks, sight.Cost = r.now, picked(found), r.reckon()
	sight.Nodes = []Node{{Server: sight.Server, Up: true, Ping: r.way, Locks: len(found)}}
	return sight, err
}

// entries reads a key and what belongs to it.
func (r *reader) entries(ctx context.Context, k ref) ([]Entry, error) {
	all, err := r.readInBounds(ctx, []ref{k})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	f, sure := r.formats.surest(all[0])
	if sure == No {
		return all, nil
	}
	var beside []ref
	for _, c := range f.related(all[0]) {
		if c.Key != k.key {
			beside = append(beside, ref{key: c.Key, typ: c.Type})
		}
	}
	related, err := r.read(ctx, beside)
	return append(all, related...), err
}
