package inspect

import (
	"context"
	"maps"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/keyspace"
)

// worthATrip is the number of related keys from which a round trip that tells which keys have any saves time.
const worthATrip = 64

// readRelated reads the companions of all keys and adds them to the entries.
func (r *reader) readRelated(ctx context.Context, all []candidate) error {
	var related []candidate
	for i := range all {
		for _, b := range all[i].companions {
			related = append(related, candidate{name: b.Key, typ: b.Type, companion: true})
		}
	}
	if len(related) >= worthATrip && !r.conn.scanner.denied.has("exists") {
		if err := r.markAbsent(ctx, all, related); err != nil {
			return err
		}
	}
	if err := r.read(ctx, related); err != nil {
		return err
	}
	hidden := maps.Clone(r.unread)
	for i := range related {
		delete(r.unread, related[i].name) // its lock counts
	}
	for i := range all {
		c := &all[i]
		c.entry.Related = make(map[string]keyspace.Entry, len(c.companions))
		for _, b := range related[:len(c.companions)] {
			if why, is := hidden[b.name]; is {
				r.unread[c.name] = why
			}
			if b.entry != nil {
				c.entry.Related[b.name] = *b.entry
			}
		}
		related = related[len(c.companions):]
	}
	return nil
}

// markAbsent marks the related keys of all keys that have none of theirs. Most do not exist, and one request for each
// key is cheaper than two for each related key.
func (r *reader) markAbsent(ctx context.Context, all, related []candidate) error {
	count := func(p redis.Pipeliner, c candidate) *redis.IntCmd {
		names := make([]string, len(c.companions))
		for i, b := range c.companions {
			names[i] = b.Key
		}
		if len(names) == 0 {
			return nil
		}
		return p.Exists(ctx, names...)
	}
	return inBatches(ctx, &r.conn, "count related keys", all, count, func(c candidate, exist *redis.IntCmd) {
		for i := range related[:len(c.companions)] {
			related[i].absent = exist.Err() == nil && exist.Val() == 0
		}
		related = related[len(c.companions):]
	})
}

// countSubscribers counts the subscribers to the channels of the keys, in a goroutine of the group. The function that
// it returns stores the numbers. Without the permission it stores nothing.
func (r *reader) countSubscribers(ctx context.Context, group *errgroup.Group, all []candidate) (store func()) {
	type listened struct {
		*candidate
		channels []string
		counts   map[string]int64
	}
	var some []*listened
	for i := range all {
		if c := &all[i]; c.heard != nil {
			some = append(some, &listened{candidate: c, channels: c.heard.Channels(*c.entry)})
		}
	}
	if len(some) == 0 {
		return func() {}
	}
	conn := r.conn
	conn.cost, conn.answeredBy, conn.aboard = keyspace.Cost{}, make(map[redis.Cmder]string), nil
	count := func(p redis.Pipeliner, c *listened) *redis.MapStringIntCmd { return p.PubSubNumSub(ctx, c.channels...) }
	group.Go(func() error {
		return inBatches(ctx, &conn, "count subscribers", some, count, func(c *listened, counts *redis.MapStringIntCmd) {
			c.counts = counts.Val()
		})
	})
	return func() {
		r.conn.cost.Add(conn.cost)
		for _, c := range some {
			c.entry.Subscribers = c.counts
		}
	}
}
