package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Key is everything that is known about one key.
type Key struct {
	keyspace.Snapshot                  // of this key alone; it has one lock or none
	Entries           []keyspace.Entry // the key as it was read, if it exists, then its companions
	Type              string           // reported by the server; none = the key does not exist
}

// ReadKey reads one key without a scan. A companion of a lock (a queue, a fence, …)
// is not a lock itself. In a cluster the key is read on its node.
func (s *Scanner) ReadKey(ctx context.Context, key string) (Key, error) {
	r := s.reader()
	s.opts.OwnReads.begin(s.keyID(key))
	defer func() { s.opts.OwnReads.end(s.keyID(key), r.conn.now) }()
	result := Key{Snapshot: keyspace.Snapshot{Complete: true, Server: keyspace.Server{Addr: s.node}}}
	var kind *redis.StatusCmd
	var replication *redis.StringCmd
	err := r.conn.pipelined(ctx, fmt.Sprintf("read %q", key), func(p redis.Pipeliner) {
		kind, replication = p.Type(ctx, key), p.Info(ctx, "replication")
	})
	describeServer(&result.Server, replication.Val())
	switch {
	case err == nil && isRedirect(kind.Err()):
		result.Type = "none"
		result.Complete = s.opts.Cluster == nil
		result.Problems = []string{partOfCluster}
		if !result.Complete {
			result.Problems = []string{fmt.Sprintf("%s redirects to another node, which does not answer", s.node)}
		}
	case err == nil:
		result.Type, err = kind.Result()
	}
	ref := keyRef{name: key, typ: result.Type}
	if err == nil && ref.typ == "none" && result.Problems == nil {
		ref, err = r.standIn(ctx, key)
	}
	result.Type = ref.typ
	var found []detection
	if err == nil && ref.typ != "none" {
		if result.Entries, err = r.readEntries(ctx, ref); err == nil {
			found, err = r.detect(ctx, []keyRef{ref})
		}
	}
	result.At, result.Locks, result.Cost = r.conn.now, locksOf(found), r.conn.takeCost()
	n := keyspace.Node{Server: result.Server, Up: true, Ping: r.conn.networkTime, Locks: len(found), Unread: r.unreadKeys().String()}
	result.Nodes, result.Problems = []keyspace.Node{n}, slices.Concat(n.Doubts(), result.Problems, s.denied.problems())
	result.Complete = result.Complete && len(n.Doubts()) == 0
	return result, err
}

// standIn returns the key that stands in for a lock without a key of its own. Its type is
// none if there is no such key, or if this user may not read it; then it is unread.
func (r *reader) standIn(ctx context.Context, lock string) (keyRef, error) {
	all := standIns(r.formats, lock)
	types := make([]*redis.StatusCmd, len(all))
	err := r.conn.pipelined(ctx, fmt.Sprintf("read %q", lock), func(p redis.Pipeliner) {
		for i, c := range all {
			types[i] = p.Type(ctx, c.Key)
		}
	})
	if err != nil {
		return keyRef{}, err
	}
	for i, c := range all {
		if types[i].Val() == c.Type {
			return keyRef{name: c.Key, typ: c.Type}, nil
		}
		if isKeyDenied(types[i].Err()) {
			r.unread[c.Key] = hiddenKey
		}
	}
	return keyRef{name: lock, typ: "none"}, nil
}

// standIns lists the keys that may stand in for a lock.
func standIns(formats []keyspace.Format, lock string) (all []keyspace.Companion) {
	for _, f := range formats {
		if f.StandIn != nil {
			all = append(all, f.StandIn(lock))
		}
	}
	return all
}

// readEntries reads a key and its companions.
func (r *reader) readEntries(ctx context.Context, k keyRef) ([]keyspace.Entry, error) {
	all, err := r.readBounded(ctx, []keyRef{k})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	f, _, sure := r.formats.best(all[0])
	if sure == keyspace.No {
		return all, nil
	}
	var beside []keyRef
	for _, c := range companionsOf(f, all[0]) {
		if c.Key != k.name {
			beside = append(beside, keyRef{name: c.Key, typ: c.Type})
		}
	}
	related, err := r.readBounded(ctx, beside)
	return append(all, related...), err
}

// ErrUnreadable means that this user may not read a key.
var ErrUnreadable = errors.New("this user may not read the key")

// ReadLock reads the lock under one key without a scan; nil if there is none. It
// returns an ErrUnreadable if this user may not read it.
func (s *Scanner) ReadLock(ctx context.Context, key string) (*keyspace.Lock, error) {
	r := s.reader()
	s.opts.OwnReads.begin(s.keyID(key))
	defer func() { s.opts.OwnReads.end(s.keyID(key), r.conn.now) }()
	typ, err := s.rdb.Type(ctx, key).Result()
	ref := keyRef{name: key, typ: typ}
	if err == nil && typ == "none" {
		ref, err = r.standIn(ctx, key)
	}
	var found []detection
	if err == nil && len(r.unread) == 0 {
		found, err = r.detect(ctx, []keyRef{ref})
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0 && len(r.unread) > 0:
		return nil, ErrUnreadable
	case len(found) == 0:
		return nil, nil
	}
	return &found[0].lock, nil
}
