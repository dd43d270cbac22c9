package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	var info *redis.StringCmd
	err := r.conn.pipelined(ctx, fmt.Sprintf("read %q", key), func(p redis.Pipeliner) {
		kind, info = p.Type(ctx, key), p.Info(ctx)
	})
	describeServer(&result.Server, info.Val())
	s.timesFields.Store(timesFields(result.Server))
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
	c := candidate{name: key, typ: result.Type}
	if err == nil && c.typ == "none" && result.Problems == nil {
		c, err = r.standIn(ctx, key)
	}
	result.Type = c.typ
	var found []candidate
	if err == nil && c.typ != "none" {
		all := []candidate{c}
		if found, err = r.gather(ctx, all); err == nil {
			result.Entries, found = all[0].entries(), r.decode(found)
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
func (r *reader) standIn(ctx context.Context, lock string) (candidate, error) {
	all := standIns(r.formats, lock)
	types := make([]*redis.StatusCmd, len(all))
	err := r.conn.pipelined(ctx, fmt.Sprintf("read %q", lock), func(p redis.Pipeliner) {
		for i, c := range all {
			types[i] = p.Type(ctx, c.name)
		}
	})
	if err != nil {
		return candidate{}, err
	}
	for i, c := range all {
		if types[i].Val() == c.typ {
			return c, nil
		}
		if isKeyDenied(types[i].Err()) {
			r.unread[c.name] = hiddenKey
		}
	}
	return candidate{name: lock, typ: "none"}, nil
}

// standIns lists the keys that may stand in for a lock.
func standIns(formats []keyspace.Format, lock string) (all []candidate) {
	for _, f := range formats {
		if f.StandIn != nil {
			c := f.StandIn(lock)
			all = append(all, candidate{name: c.Key, typ: c.Type})
		}
	}
	return all
}

// entries returns the key as it was read, if it exists, then its companions.
func (c *candidate) entries() []keyspace.Entry {
	if c.entry == nil {
		return nil
	}
	all := []keyspace.Entry{*c.entry}
	all[0].Related, all[0].Subscribers = nil, nil
	for _, b := range c.companions {
		if e, exists := c.entry.Related[b.Key]; exists && b.Key != c.name {
			all = append(all, e)
		}
	}
	return all
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
	c := candidate{name: key, typ: typ}
	if err == nil && typ == "none" {
		c, err = r.standIn(ctx, key)
	}
	var found []candidate
	if err == nil && len(r.unread) == 0 {
		found, err = r.detect(ctx, []candidate{c})
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0 && len(r.unread) > 0:
		return nil, ErrUnreadable
	case len(found) == 0:
		return nil, nil
	}
	return found[0].lock, nil
}

// readFieldDeadlines reads the deadlines of the fields of hashes. The libraries whose layout is
// certain set none beside the TTL of the key.
func (r *reader) readFieldDeadlines(ctx context.Context, all []candidate) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return c.typ != "hash" || len(c.entry.Members) == 0 || c.certain && !c.entry.Expires.IsZero()
	})
	for some := range slices.Chunk(all, batchSize) {
		deadlines := make([]*redis.IntSliceCmd, len(some))
		err := r.conn.pipelined(ctx, "read the deadlines of fields", func(p redis.Pipeliner) {
			for i, c := range some {
				var names []string
				for _, m := range c.entry.Members {
					names = append(names, m.Name)
				}
				deadlines[i] = p.HPExpireTime(ctx, c.name, names...)
			}
		})
		if err != nil {
			return err
		}
		for i, c := range some {
			for j, ms := range deadlines[i].Val() { // -1 = none, -2 = the field is gone
				if ms > 0 {
					c.entry.Members[j].Expires = time.UnixMilli(ms)
				}
			}
		}
	}
	return nil
}

// timesFields reports whether the fields of hashes can have deadlines on a server.
func timesFields(s keyspace.Server) bool {
	var major, minor int
	_, _ = fmt.Sscanf(s.Version, "%d.%d", &major, &minor)
	return s.Product == "redis" && (major > 7 || major == 7 && minor >= 4) || s.Product == "valkey" && major >= 9
}

// candidate is a key that may be a lock. It is filled in steps: the filter sets name and type,
// read the entry, match the format and the companions, decode the lock. A Watcher keeps in it
// what it knows of the lock.
type candidate struct {
	name, typ  string           // the key to read, and its expected type; the key may stand in for that of the lock
	entry      *keyspace.Entry  // the key as it was read, until it is decoded; nil = it is gone or was not read
	format     *keyspace.Format // the one that matches best
	heard      *keyspace.Format // the one whose subscribers are counted, until it is decoded; nil = none
	companions []keyspace.Companion
	lock       *keyspace.Lock // never changed once it is in a lockSet; snapshots share it
	spread     time.Duration  // the deadline may be later than read by up to this
	firstRead  time.Time      // local clock: the holder was read under this deadline by then
	lastRead   time.Time      // local clock: begin of the last such read
	touched    int64          // server's clock, in ms: no later own read has reset the idle time
	due        int64          // when it is read again, in ns since 1970 on the server's clock; 0 = only when it changes
	place      int            // in the deadlineQueue, if it is due
	quiet      uint32         // checks without a request of another client that no statistics count
	probed     string         // the first piece of the value when idle was asked for, until it is decoded
	idle       uint32         // seconds for which the key had not changed at least before the first read
	oversized  bool           // everything but its elements is read
	absent     bool           // the server knows no such key
	companion  bool           // of another key; most do not exist, so that all are measured before they are read
	light      bool           // its elements were measured together with the types of other keys, and may be read
	small      bool           // the command that reads a whole value may take the place of one that is denied
	certain    bool           // the format is, from the key alone
	partial    bool           // companions could not be read
	shared     bool           // other keys may have the same idle time
}

// none is no lock.
var none = candidate{lock: new(keyspace.Lock)}
