package contest

import (
	"context"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// openRedsync opens redsync on one server, over go-redis, with its own pauses
// between tries (50 to 250 ms) and no limit of tries.
func openRedsync(addr string, l Lease) (Fleet, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	return &redsyncFleet{rdb, redsync.New(goredis.NewPool(rdb)), l}, nil
}

type redsyncFleet struct {
	rdb   *redis.Client
	sync  *redsync.Redsync
	lease Lease
}

func (f *redsyncFleet) Client(key string) Client {
	return redsyncClient{f.sync.NewMutex(key, redsync.WithExpiry(f.lease.TTL), redsync.WithTries(math.MaxInt))}
}

func (f *redsyncFleet) Close() error { return f.rdb.Close() }

type redsyncClient struct{ mutex *redsync.Mutex }

func (c redsyncClient) Lock(ctx context.Context) error { return c.mutex.LockContext(ctx) }

func (c redsyncClient) Unlock(ctx context.Context) error {
	_, err := c.mutex.UnlockContext(ctx)
	return err
}
