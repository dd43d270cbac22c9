package contest

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockPause is the pause between tries. The library has no default.
const redislockPause = 50 * time.Millisecond

// openRedislock opens bsm/redislock over go-redis.
func openRedislock(addr string, l Lease) (Fleet, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	return &redislockFleet{rdb, redislock.New(rdb), l}, nil
}

type redislockFleet struct {
	rdb    *redis.Client
	client *redislock.Client
	lease  Lease
}

func (f *redislockFleet) Client(key string) Client {
	return &redislockClient{redislockFleet: f, key: key}
}

func (f *redislockFleet) Close() error { return f.rdb.Close() }

type redislockClient struct {
	*redislockFleet
	key  string
	lock *redislock.Lock
}

func (c *redislockClient) Lock(ctx context.Context) (err error) {
	c.lock, err = c.client.Obtain(ctx, c.key, c.lease.TTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(redislockPause),
	})
	return err
}

func (c *redislockClient) Unlock(ctx context.Context) error { return c.lock.Release(ctx) }
