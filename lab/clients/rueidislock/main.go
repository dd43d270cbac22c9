// Rueidislock is a client of locktop load --exec that locks with rueidislock: it renews by
// itself, and a context tells the holder of a loss.
package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"locktop/lab/clients/line"
	"locktop/loadgen/external"
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
	return func(ctx context.Context, key string, ttl time.Duration) (external.Hold, error) {
		locker, err := lockers.of(ttl)
		if err != nil {
			return external.Hold{}, err
		}
		// The hold must not end with the wait for it.
		var end atomic.Int64
		held, stop := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), endKey{}, &end))
		giveUp := context.AfterFunc(ctx, stop)
		holding, release, err := locker.WithContext(held, key)
		if err != nil {
			stop()
			if ctx.Err() != nil {
				err = external.ErrHeld
			}
			return external.Hold{}, err
		}
		giveUp()
		return external.Hold{
			Deadline: time.UnixMilli(end.Load()), // it is over after a freeze; renewals do not show
			Lost:     holding.Done(),
			Unlock: func(context.Context) error {
				defer stop()
				if holding.Err() != nil {
					return external.ErrLost
				}
				release()
				return nil
			},
		}, nil
	}, nil
}

// endKey is the key of the value of a context that takes the end of the lease, in ms since 1970.
type endKey struct{}

// watched is a client that takes the end of a lease from the command that got it: the library
// computes it before the command, and does not tell it.
type watched struct{ rueidis.Client }

func (w watched) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	words := command.Commands()
	at, _ := strconv.ParseInt(words[len(words)-1], 10, 64) // PXAT
	result := w.Client.Do(ctx, command)
	if end, ok := ctx.Value(endKey{}).(*atomic.Int64); ok {
		if text, err := result.ToString(); err == nil && text == "OK" { // an extension has a number
			end.Store(at)
		}
	}
	return result
}

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
		ClientOption: b.option, KeyValidity: ttl, KeyMajority: 1, NoLoopTracking: true,
		ClientBuilder: func(o rueidis.ClientOption) (rueidis.Client, error) {
			c, err := rueidis.NewClient(o)
			return watched{c}, err
		},
	})
	if err == nil {
		b.all[ttl] = l
	}
	return l, err
}
