package inspect

import (
	"context"
	"maps"
	"slices"

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
	if len(related) >= worthATrip && !r.conn.denied.has("exists") {
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
	for some := range slices.Chunk(all, batchSize) {
		counts := make([]*redis.IntCmd, len(some))
		err := r.conn.pipelined(ctx, "count related keys", func(p redis.Pipeliner) {
			for i, c := range some {
				names := make([]string, len(c.companions))
				for j, b := range c.companions {
					names[j] = b.Key
				}
				if len(names) > 0 {
					counts[i] = p.Exists(ctx, names...)
				}
			}
		})
		if err != nil {
			return err
		}
		for i, c := range some {
			for j := range related[:len(c.companions)] {
				related[j].absent = counts[i].Err() == nil && counts[i].Val() == 0
			}
			related = related[len(c.companions):]
		}
	}
	return nil
}

// countSubscribers counts the subscribers to the channels of the keys, in a goroutine of the group. The function that
// it returns stores the numbers. Without the permission it stores nothing.
func (r *reader) countSubscribers(ctx context.Context, group *errgroup.Group, all []candidate) (store func()) {
	var listened []*candidate
	var channels [][]string
	for i := range all {
		if c := &all[i]; c.heard != nil {
			listened, channels = append(listened, c), append(channels, c.heard.Channels(*c.entry))
		}
	}
	if len(listened) == 0 {
		return func() {}
	}
	counts := make([]*redis.MapStringIntCmd, len(listened))
	conn := r.conn
	conn.cost, conn.answeredBy, conn.aboard = keyspace.Cost{}, make(map[redis.Cmder]string), nil
	group.Go(func() error {
		for from := 0; from < len(counts); from += batchSize {
			err := conn.pipelined(ctx, "count subscribers", func(p redis.Pipeliner) {
				for i := from; i < min(from+batchSize, len(counts)); i++ {
					counts[i] = p.PubSubNumSub(ctx, channels[i]...)
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func() {
		r.conn.cost.Add(conn.cost)
		for i, c := range listened {
			if counts[i].Err() == nil {
				c.entry.Subscribers = counts[i].Val()
			}
		}
	}
}
