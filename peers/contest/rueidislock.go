package contest

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// openRueidislock opens rueidislock on one key a lock, like everybody else; of
// itself it takes three. The server is new enough to spare it the notices of
// its own changes. A try may last a second: with the 20 ms that it grants of
// itself, and a server that is busy, it waits for news that never comes.
func openRueidislock(addr string, l Lease) (Fleet, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    l.TTL,
		ExtendInterval: l.Renew,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockFleet{locker}, nil
}

type rueidislockFleet struct{ locker rueidislock.Locker }

func (f rueidislockFleet) Client(key string) Client {
	return &rueidislockClient{locker: f.locker, name: key}
}

func (f rueidislockFleet) Close() error {
	f.locker.Close()
	return nil
}

type rueidislockClient struct {
	locker rueidislock.Locker
	name   string
	lease  context.Context
	unlock context.CancelFunc
}

func (c *rueidislockClient) Lock(ctx context.Context) (err error) {
	c.lease, c.unlock, err = c.locker.WithContext(ctx, c.name)
	return err
}

// Unlock implements Client: the library bounds the wait by itself.
func (c *rueidislockClient) Unlock(context.Context) error {
	c.unlock()
	return nil
}

// Held implements holder.
func (c *rueidislockClient) Held() bool { return c.lease.Err() == nil }
