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
type Client interface {
	// Lock waits for the lock until ctx ends.
	Lock(ctx context.Context) error
	// Unlock returns once the server has confirmed the release.
	Unlock(ctx context.Context) error
}

// alternating acquires a lock as a reader every so many cycles.
type alternating struct {
	reader, writer, inside Client
	every, cycle           int
}

func (c *alternating) Lock(ctx context.Context) error {
	c.inside = c.writer
	if c.cycle++; c.cycle%c.every == 0 {
		c.inside = c.reader
	}
	return c.inside.Lock(ctx)
}

func (c *alternating) Unlock(ctx context.Context) error { return c.inside.Unlock(ctx) }

// named returns the contenders with these names, in order.
func named(contenders []Contender, names ...string) []Contender {
	return slices.DeleteFunc(contenders, func(c Contender) bool { return !slices.Contains(names, c.Name) })
}

// in returns the contenders of a set of benchmarks, in order.
func in(e Events) []Contender {
	var some []Contender
	for _, c := range Contenders() {
		if c.Runs&e != 0 {
			some = append(some, c)
		}
	}
	return some
}

// openLocktop returns a function that opens a kind of lock of package lock.
func openLocktop[L lock.Locker](kind func(*lock.Client, string, lock.Options) L) func(string, Lease) (Process, error) {
	return func(addr string, l Lease) (Process, error) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		client, err := lock.New(rdb, lock.Config{})
		if err != nil {
			return Process{}, errors.Join(err, rdb.Close())
		}
		options := lock.Options{TTL: l.TTL, Renew: lock.Renew{Every: l.Renew}}
		return Process{
			Client: func(key string) Client { return &locktopClient{locker: kind(client, key, options)} },
			Close:  func() error { return errors.Join(client.Close(), rdb.Close()) },
		}, nil
	}
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

// compareAndDelete releases a lock if the token is still the client's.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`

// openRaw opens the cheapest lock without pipelining: SET NX and
// compare-and-delete over a pool.
func openRaw(addr string, l Lease) (Process, error) {
	rdb, release := redis.NewClient(&redis.Options{Addr: addr}), redis.NewScript(compareAndDelete)
	return Process{
		Client: func(key string) Client { return &rawClient{rdb: rdb, release: release, lease: l, key: key} },
		Close:  rdb.Close,
	}, nil
}

type rawClient struct {
	rdb        *redis.Client
	release    *redis.Script
	lease      Lease
	key, token string
}

var (
	errHeld = errors.New("another client holds the lock")
	errLost = errors.New("the lock had another token at the release")
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

// openRedsync opens redsync on one server, over go-redis, with its own pauses
// between tries (50 to 250 ms) and no limit of tries.
func openRedsync(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	sync := redsync.New(goredis.NewPool(rdb))
	return Process{
		Client: func(key string) Client {
			return redsyncClient{sync.NewMutex(key, redsync.WithExpiry(l.TTL), redsync.WithTries(math.MaxInt))}
		},
		Close: rdb.Close,
	}, nil
}

type redsyncClient struct{ mutex *redsync.Mutex }

func (c redsyncClient) Lock(ctx context.Context) error { return c.mutex.LockContext(ctx) }

func (c redsyncClient) Unlock(ctx context.Context) error {
	_, err := c.mutex.UnlockContext(ctx)
	return err
}

// redislockPause is the pause between tries. The library has no default.
const redislockPause = 50 * time.Millisecond

// openRedislock opens bsm/redislock over go-redis.
func openRedislock(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	client := redislock.New(rdb)
	return Process{
		Client: func(key string) Client { return &redislockClient{client: client, lease: l, key: key} },
		Close:  rdb.Close,
	}, nil
}

type redislockClient struct {
	client *redislock.Client
	lease  Lease
	key    string
	lock   *redislock.Lock
}

func (c *redislockClient) Lock(ctx context.Context) (err error) {
	c.lock, err = c.client.Obtain(ctx, c.key, c.lease.TTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(redislockPause),
	})
	return err
}

func (c *redislockClient) Unlock(ctx context.Context) error { return c.lock.Release(ctx) }

// openRueidislock opens rueidislock with one key per lock, like the others; its
// default is three. NoLoopTracking avoids the notices of its own changes. A try
// may last 1 s: with its default of 20 ms and a busy server, it waits for a
// notice that never comes.
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
		Client: func(key string) Client { return &rueidislockClient{locker: locker, key: key} },
		Close:  func() error { locker.Close(); return nil },
	}, nil
}

type rueidislockClient struct {
	locker rueidislock.Locker
	key    string
	lease  context.Context
	unlock context.CancelFunc
}

func (c *rueidislockClient) Lock(ctx context.Context) (err error) {
	c.lease, c.unlock, err = c.locker.WithContext(ctx, c.key)
	return err
}

// Unlock implements Client. The library limits the wait itself.
func (c *rueidislockClient) Unlock(context.Context) error {
	c.unlock()
	return nil
}

// Held implements holder.
func (c *rueidislockClient) Held() bool { return c.lease.Err() == nil }
