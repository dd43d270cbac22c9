package contest

import (
	"context"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// openLocktop returns a function that opens a kind of lock of package lock.
func openLocktop[L lock.Locker](kind func(*lock.Client, string, lock.Options) L) func(string, Lease) (Fleet, error) {
	return func(addr string, l Lease) (Fleet, error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		client, err := lock.New(rdb, lock.Config{})
		if err != nil {
			return nil, err
		}
		options := lock.Options{TTL: l.TTL, Renew: lock.Renew{Every: l.Renew}}
		return &locktopFleet{rdb: rdb, client: client, locker: func(key string) lock.Locker {
			return kind(client, key, options)
		}}, nil
	}
}

type locktopFleet struct {
	rdb    *redis.Client
	client *lock.Client
	locker func(key string) lock.Locker
}

func (f *locktopFleet) Client(key string) Client { return &locktopClient{locker: f.locker(key)} }

func (f *locktopFleet) Close() error {
	defer f.rdb.Close()
	return f.client.Close()
}

type locktopClient struct {
	locker lock.Locker
	lease  *lock.Lease
}

func (c *locktopClient) Lock(ctx context.Context) (err error) {
	c.lease, err = c.locker.Lock(ctx)
	return err
}

func (c *locktopClient) Unlock(ctx context.Context) error { return c.lease.Unlock(ctx) }

// Held implements holder.
func (c *locktopClient) Held() bool { return c.lease.Valid() }
