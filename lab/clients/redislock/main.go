// Redislock is a client of locktop load --exec that locks with bsm/redislock.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"locktop/lab/clients/line"
	"locktop/loadgen/external"
)

func main() {
	line.Library{Name: "redislock", Module: "github.com/bsm/redislock", Kinds: []string{"mutex"}, Open: open}.Serve()
}

// retry polls every 10 ms, and notes when an attempt can have begun at the earliest.
type retry struct{ asked time.Time }

func (r *retry) NextBackoff() time.Duration {
	r.asked = time.Now()
	return 10 * time.Millisecond
}

func open(urls []string) (line.Lock, error) {
	o, err := redis.ParseURL(urls[0])
	if err != nil {
		return nil, err
	}
	locks := redislock.New(redis.NewClient(o))
	return func(ctx context.Context, key string, ttl time.Duration) (external.Hold, error) {
		r := &retry{asked: time.Now()}
		l, err := locks.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: r})
		if errors.Is(err, redislock.ErrNotObtained) {
			err = external.ErrHeld
		}
		return external.Hold{
			Deadline: r.asked.Add(ttl),
			Unlock:   func(ctx context.Context) error { return lost(l.Release(ctx), redislock.ErrLockNotHeld) },
			Extend: func(ctx context.Context, ttl time.Duration) (time.Time, error) {
				asked := time.Now()
				return asked.Add(ttl), lost(l.Refresh(ctx, ttl, nil), redislock.ErrNotObtained)
			},
		}, err
	}, nil
}

// lost makes one error of the library ErrLost.
func lost(err, means error) error {
	if errors.Is(err, means) {
		return external.ErrLost
	}
	return err
}
