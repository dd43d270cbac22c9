package contest

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// openRueidislock opens rueidislock with one key per lock, like the others; its
// default is three. NoLoopTracking avoids the notices of its own changes. A try
// may last 1 s: with its default of 20 ms and a busy server, it waits for a
// notice that never comes.
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

// Unlock implements Client. The library limits the wait itself.
func (c *rueidislockClient) Unlock(context.Context) error {
	c.unlock()
	return nil
}

// Held implements holder.
func (c *rueidislockClient) Held() bool { return c.lease.Err() == nil }
