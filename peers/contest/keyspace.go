package contest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// haystack sets keys ordinary keys of the usual types on the server, 70% of
// them strings and half of them with a TTL, and locks locks of six formats
// among them, under names without a meaning.
func (a *Arena) haystack(ctx context.Context, keys, locks int) error {
	if err := a.clear(ctx); err != nil {
		return err
	}
	p := a.rdb.Pipeline()
	for i := range keys {
		hay(ctx, p, i)
		if i < locks {
			needle(ctx, p, i)
		}
		if p.Len() < 5000 && i < keys-1 {
			continue
		}
		if _, err := p.Exec(ctx); err != nil {
			return fmt.Errorf("fill the server: %w", err)
		}
	}
	return nil
}

// hay sets an ordinary key.
func hay(ctx context.Context, p redis.Pipeliner, i int) {
	ttl := time.Duration(i%2) * (time.Hour + time.Duration(i)*time.Millisecond)
	switch i % 10 {
	case 0, 1, 2:
		p.Set(ctx, fmt.Sprintf("session:%016x", uint64(i)*0x9e3779b97f4a7c15), fmt.Sprintf(`{"user":%d,"roles":["reader","writer"],"seen":1763680000}`, i), ttl)
	case 3, 4:
		p.Set(ctx, fmt.Sprintf("page:%d", i), strings.Repeat("<p>some text</p>", 16), ttl)
	case 5:
		p.Set(ctx, fmt.Sprintf("visits:%d", i), i, 0)
	case 6:
		p.Set(ctx, fmt.Sprintf("user:%d:name", i), fmt.Sprintf("somebody of the name of %d", i), 0)
	case 7, 8:
		p.HSet(ctx, fmt.Sprintf("user:%d", i), "name", "somebody", "logins", i, "city", "Graz")
	default:
		p.RPush(ctx, fmt.Sprintf("feed:%d", i), "a", "b", i)
	}
}

// needle sets a lock as one of six libraries does.
func needle(ctx context.Context, p redis.Pipeliner, i int) {
	const ttl = time.Hour
	name := fmt.Sprintf("thing:%d", i)
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String()
	switch i % 6 {
	case 0: // redsync
		p.Set(ctx, name, fmt.Sprintf("qL3xN0b2Zf8dYw5tK%04dQ==", i%10_000), ttl)
	case 1: // bsm/redislock
		p.Set(ctx, name, fmt.Sprintf("Zk3_vN0b2Qf8dYw5t%04dA", i%10_000), ttl)
	case 2: // Redisson
		p.HSet(ctx, name, fmt.Sprintf("%s:%d", id, i), 1)
		p.PExpire(ctx, name, ttl)
	case 3: // Redisson, read/write
		p.HSet(ctx, name, "mode", "read", fmt.Sprintf("%s:%d", id, i), 1)
		p.PExpire(ctx, name, ttl)
	case 4: // an id and the time
		p.Set(ctx, name, fmt.Sprintf("%s:%d", id, 1_763_680_000_000+i), ttl)
	case 5: // DistributedLock for .NET
		p.Set(ctx, name, fmt.Sprintf("web-01_%d_%s", i, strings.ReplaceAll(id, "-", "")), ttl)
	}
}

// bareScan measures the cheapest way to see every key once.
func (a *Arena) bareScan(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	for cursor := uint64(0); ; {
		var err error
		if _, cursor, err = a.rdb.Scan(ctx, cursor, "", 1000).Result(); err != nil {
			return 0, fmt.Errorf("scan: %w", err)
		}
		if cursor == 0 {
			return time.Since(begin), nil
		}
	}
}

// search is the cost of finding the locks.
type search struct {
	took  time.Duration
	first time.Duration // until the first lock was found
	snap  keyspace.Snapshot
}

// find scans for locks as locktop list does.
func (a *Arena) find(ctx context.Context, pace *inspect.Budget, globs ...string) (search, error) {
	var s search
	begin := time.Now()
	snap, err := inspect.NewScanner(a.rdb, inspect.ScanOptions{
		Formats: formats.All(), Match: globs, Budget: pace,
		Progress: func(page keyspace.Snapshot) {
			if s.first == 0 && len(page.Locks) > 0 {
				s.first = time.Since(begin)
			}
		},
	}).Scan(ctx)
	s.took, s.snap = time.Since(begin), snap
	return s, err
}
