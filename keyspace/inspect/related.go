package inspect

import (
	"context"
	"maps"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/keyspace"
)

// readRelated reads the companions of all keys and adds them to the entries.
func (r *reader) readRelated(ctx context.Context, all []candidate) error {
	var related []candidate
	for i := range all {
		for _, b := range all[i].companions {
			related = append(related, candidate{name: b.Key, typ: b.Type, companion: true})
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
	conn.cost, conn.answeredBy = keyspace.Cost{}, make(map[redis.Cmder]string)
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
