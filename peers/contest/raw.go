package contest

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

// compareAndDelete releases a lock if the token is still the client's.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`

// openRaw opens the cheapest lock without pipelining: SET NX and
// compare-and-delete over a pool.
func openRaw(addr string, l Lease) (Fleet, error) {
	return &rawFleet{redis.NewClient(&redis.Options{Addr: addr}), redis.NewScript(compareAndDelete), l}, nil
}

type rawFleet struct {
	rdb     *redis.Client
	release *redis.Script
	lease   Lease
}

func (f *rawFleet) Client(key string) Client { return &rawClient{rawFleet: f, key: key} }

func (f *rawFleet) Close() error { return f.rdb.Close() }

type rawClient struct {
	*rawFleet
	key, token string
}

var (
	errHeld = errors.New("somebody else holds it")
	errLost = errors.New("it was not ours any more")
)

// Lock does not wait: it is for keys without contention.
func (c *rawClient) Lock(ctx context.Context) error {
	c.token = rand.Text()
	set, err := c.rdb.SetNX(ctx, c.key, c.token, c.lease.TTL).Result()
	if err == nil && !set {
		return errHeld
	}
	return err
}

func (c *rawClient) Unlock(ctx context.Context) error {
	deleted, err := c.release.Run(ctx, c.rdb, []string{c.key}, c.token).Int()
	if err == nil && deleted == 0 {
		return errLost
	}
	return err
}
