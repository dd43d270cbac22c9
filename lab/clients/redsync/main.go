// Redsync is a client of locktop load --exec that locks with redsync: a Redlock over all
// servers, or a mutex on one.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"locktop/lab/clients/line"
	"locktop/loadgen/external"
)

func main() {
	line.Library{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Kinds: []string{"mutex", "redlock"}, Open: open}.Serve()
}

func open(urls []string) (line.Lock, error) {
	var pools []redsyncredis.Pool
	for _, url := range urls {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(o)))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, key string, ttl time.Duration) (external.Hold, error) {
		// The default of 32 tries is less than the time that a request may wait.
		m := rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1<<20))
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) || err != nil && ctx.Err() != nil {
			err = external.ErrHeld
		}
		return hold(m), err
	}, nil
}

func hold(m *redsync.Mutex) external.Hold {
	return external.Hold{
		Deadline: m.Until(),
		Unlock: func(ctx context.Context) error {
			ok, err := m.UnlockContext(ctx)
			return lost(ok, err)
		},
		Extend: func(ctx context.Context, _ time.Duration) (time.Time, error) {
			ok, err := m.ExtendContext(ctx)
			return m.Until(), lost(ok, err)
		},
	}
}

// lost returns the error of a release or an extension.
func lost(ok bool, err error) error {
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) || err == nil && !ok {
		return external.ErrLost
	}
	return err
}
