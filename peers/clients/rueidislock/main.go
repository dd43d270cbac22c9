// Rueidislock is a client of locktop load --exec that locks with rueidislock: it renews by
// itself, and a context tells the holder of a loss.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"locktop/peers/clients/line"
)

func main() {
	line.Library{Name: "rueidislock", Module: "github.com/redis/rueidis", Kinds: []string{"mutex"}, Renews: true, Tells: true, Open: open}.Serve()
}

func open(urls []string) (line.Lock, error) {
	o, err := rueidis.ParseURL(urls[0])
	if err != nil {
		return nil, err
	}
	lockers := &byTTL{option: o, all: make(map[time.Duration]rueidislock.Locker)}
	return func(ctx context.Context, key string, ttl time.Duration) (line.Hold, error) {
		locker, err := lockers.of(ttl)
		if err != nil {
			return line.Hold{}, err
		}
		// The hold must not end with the wait for it.
		held, stop := context.WithCancel(context.WithoutCancel(ctx))
		giveUp := context.AfterFunc(ctx, stop)
		holding, release, err := locker.WithContext(held, key)
		if err != nil {
			stop()
			if ctx.Err() != nil {
				err = line.ErrHeld
			}
			return line.Hold{}, err
		}
		giveUp()
		return line.Hold{
			Valid: ttl - attempt, // the one that succeeded may have begun so long ago; renewals do not show
			Lost:  holding.Done(),
			Unlock: func(context.Context) error {
				defer stop()
				if holding.Err() != nil {
					return line.ErrLost
				}
				release()
				return nil
			},
		}, nil
	}, nil
}

// attempt is how long one attempt may take: the default of the library.
const attempt = 20 * time.Millisecond

// byTTL has one locker per TTL: it is a setting of the locker.
type byTTL struct {
	option rueidis.ClientOption
	mu     sync.Mutex
	all    map[time.Duration]rueidislock.Locker
}

func (b *byTTL) of(ttl time.Duration) (rueidislock.Locker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.all[ttl]; l != nil {
		return l, nil
	}
	// One key per lock and NOLOOP, as in the README. Without NOLOOP a holder hears of its
	// own extension and extends again, thousands of times a second.
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: b.option, KeyValidity: ttl, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: attempt,
	})
	if err == nil {
		b.all[ttl] = l
	}
	return l, err
}
