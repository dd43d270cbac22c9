// Package contest measures lock libraries side by side: on one redis-server, in
// one process, one after another in every round, so that other load on the
// machine affects all of them. Only ratios within a run are meaningful.
package contest

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"locktop/lock"
)

// Contender is a lock library in its fastest configuration.
type Contender struct {
	Name string
	Open func(addr string, l Lease) (Process, error)
	Runs Events
}

// Events is a set of benchmarks.
type Events uint8

// The benchmarks: cycles without contention, one key that all clients want, and
// many leases.
const (
	Cycles Events = 1 << iota
	HotKey
	Keeping
)

// Contenders returns all contenders. The others are compared with the first.
func Contenders() []Contender {
	return []Contender{
		{Name: mutexName, Open: openLocktop((*lock.Client).Mutex), Runs: Cycles | HotKey | Keeping},
		{Name: fairName, Open: openLocktop((*lock.Client).Fair), Runs: Cycles | HotKey},
		{Name: "raw", Open: openRaw, Runs: Cycles},
		{Name: "redsync", Open: openRedsync, Runs: Cycles | HotKey},
		{Name: "redislock", Open: openRedislock, Runs: Cycles | HotKey},
		{Name: "rueidislock", Open: openRueidislock, Runs: Cycles | HotKey | Keeping},
	}
}

// Lease describes the leases of a contender.
type Lease struct {
	TTL   time.Duration
	Renew time.Duration // between renewals, for contenders that renew
}

// Process holds a library's connections of one process, and the clients that
// share them.
type Process struct {
	// Client returns a client that locks key. It sends no command.
	Client func(key string) Client
	// Reader returns a client that acquires key as a reader. It is nil if the library has
	// no read/write locks.
	Reader func(key string) Client
	// Close closes the connections. No lock may be held.
	Close func() error
}

// Client locks one key. It is not safe for concurrent use.
type Client struct {
	// Lock waits for the lock until ctx ends.
	Lock func(ctx context.Context) error
	// Unlock returns once the server has confirmed the release.
	Unlock func(ctx context.Context) error
	// Held reports whether the client still holds its lease; nil: it does not know.
	Held func() bool
}

// alternating returns a client that acquires a lock as a reader every so many cycles, of which
// it has done a number.
func alternating(reader, writer Client, every, cycle int) Client {
	var inside Client
	return Client{
		Lock: func(ctx context.Context) error {
			inside = writer
			if cycle++; cycle%every == 0 {
				inside = reader
			}
			return inside.Lock(ctx)
		},
		Unlock: func(ctx context.Context) error { return inside.Unlock(ctx) },
	}
}

// in returns the contenders of a set of benchmarks, in order.
func in(e Events) []Contender {
	return slices.DeleteFunc(Contenders(), func(c Contender) bool { return c.Runs&e == 0 })
}

// openLocktop returns a function that opens a kind of lock of package lock.
func openLocktop(kind func(*lock.Client, string, lock.Options) (lock.Locker, error)) func(string, Lease) (Process, error) {
	return func(addr string, l Lease) (Process, error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		client, err := lock.New(rdb, lock.Config{})
		if err != nil {
			return Process{}, errors.Join(err, rdb.Close())
		}
		options := lock.Options{TTL: l.TTL, Renew: lock.Renew{Every: l.Renew}}
		return Process{
			Client: func(key string) Client {
				locker, invalid := kind(client, key, options)
				var lease *lock.Lease
				return Client{
					Lock: func(ctx context.Context) (err error) {
						if invalid != nil {
							return invalid
						}
						lease, err = locker.Lock(ctx)
						return err
					},
					Unlock: func(ctx context.Context) error { return lease.Unlock(ctx) },
					Held:   func() bool { return lease.Valid() },
				}
			},
			Close: func() error { return errors.Join(client.Close(), rdb.Close()) },
		}, nil
	}
}

// compareAndDelete releases a lock if the token is still the client's.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`

var (
	errHeld = errors.New("another client holds the lock")
	errLost = errors.New("the lock had another token at the release")
)

// openRaw opens the cheapest lock without pipelining: SET NX and
// compare-and-delete over a pool. It does not wait: it is for keys without contention.
func openRaw(addr string, l Lease) (Process, error) {
	rdb, release := redis.NewClient(&redis.Options{Addr: addr}), redis.NewScript(compareAndDelete)
	return Process{Close: rdb.Close, Client: func(key string) Client {
		var token string
		return Client{
			Lock: func(ctx context.Context) error {
				token = rand.Text()
				set, err := rdb.SetNX(ctx, key, token, l.TTL).Result()
				if err == nil && !set {
					return errHeld
				}
				return err
			},
			Unlock: func(ctx context.Context) error {
				deleted, err := release.Run(ctx, rdb, []string{key}, token).Int()
				if err == nil && deleted == 0 {
					return errLost
				}
				return err
			},
		}
	}}, nil
}

// openRedsync opens redsync on one server, over go-redis, with its own pauses
// between tries (50 to 250 ms) and no limit of tries.
func openRedsync(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	sync := redsync.New(goredis.NewPool(rdb))
	return Process{Close: rdb.Close, Client: func(key string) Client {
		m := sync.NewMutex(key, redsync.WithExpiry(l.TTL), redsync.WithTries(math.MaxInt))
		return Client{Lock: m.LockContext, Unlock: func(ctx context.Context) error {
			_, err := m.UnlockContext(ctx)
			return err
		}}
	}}, nil
}

// redislockPause is the pause between tries. The library has no default.
const redislockPause = 50 * time.Millisecond

// openRedislock opens bsm/redislock over go-redis.
func openRedislock(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	client := redislock.New(rdb)
	return Process{Close: rdb.Close, Client: func(key string) Client {
		var held *redislock.Lock
		return Client{
			Lock: func(ctx context.Context) (err error) {
				held, err = client.Obtain(ctx, key, l.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)})
				return err
			},
			Unlock: func(ctx context.Context) error { return held.Release(ctx) },
		}
	}}, nil
}

// noticeTimeout is how long a client of rueidislock waits for a notice before it asks again.
const noticeTimeout = 5 * time.Second

// openRueidislock opens rueidislock with one key per lock, like the others; its
// default is three. NoLoopTracking avoids the notices of its own changes. A try
// may last 1 s: with its default of 20 ms and a busy server, it waits for a
// notice that never comes. With 1 s this is rare, and the client asks again
// after noticeTimeout.
func openRueidislock(addr string, l Lease) (Process, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    l.TTL,
		ExtendInterval: l.Renew,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return Process{}, err
	}
	return Process{
		Client: func(key string) Client {
			var lease context.Context
			var unlock, giveUp context.CancelFunc
			return Client{
				Lock: func(ctx context.Context) error {
					for {
						var waiting context.Context
						var err error
						waiting, giveUp = context.WithCancel(ctx)
						limit := time.AfterFunc(noticeTimeout, giveUp)
						lease, unlock, err = locker.WithContext(waiting, key)
						switch {
						case err == nil && limit.Stop():
							return nil
						case err == nil:
							unlock() // giveUp has ended the lease
						case ctx.Err() != nil || waiting.Err() == nil:
							giveUp()
							return err
						}
					}
				},
				Unlock: func(context.Context) error { unlock(); giveUp(); return nil }, // the library limits the wait itself
				Held:   func() bool { return lease.Err() == nil },
			}
		},
		Close: func() error { locker.Close(); return nil },
	}, nil
}
