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
	Open func(addr string, l Lease) (Fleet, error)
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
		{Name: "locktop", Open: openLocktop((*lock.Client).Mutex), Runs: Cycles | HotKey | Keeping},
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

// Fleet holds a library's connections of one process, and the clients that
// share them.
type Fleet interface {
	// Client returns a client that locks key. It sends no command.
	Client(key string) Client
	// Close closes the connections. No lock may be held.
	Close() error
}

// Client locks one key. It is not safe for concurrent use.
type Client interface {
	// Lock waits for the lock until ctx ends.
	Lock(ctx context.Context) error
	// Unlock returns once the server has confirmed the release.
	Unlock(ctx context.Context) error
}

// named returns the contenders with these names, in order.
func named(who []Contender, names ...string) []Contender {
	return slices.DeleteFunc(who, func(c Contender) bool { return !slices.Contains(names, c.Name) })
}

// in returns the contenders that run an event, in order.
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

// openRedsync opens redsync on one server, over go-redis, with its own pauses
// between tries (50 to 250 ms) and no limit of tries.
func openRedsync(addr string, l Lease) (Fleet, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	return &redsyncFleet{rdb, redsync.New(goredis.NewPool(rdb)), l}, nil
}

type redsyncFleet struct {
	rdb   *redis.Client
	sync  *redsync.Redsync
	lease Lease
}

func (f *redsyncFleet) Client(key string) Client {
	return redsyncClient{f.sync.NewMutex(key, redsync.WithExpiry(f.lease.TTL), redsync.WithTries(math.MaxInt))}
}

func (f *redsyncFleet) Close() error { return f.rdb.Close() }

type redsyncClient struct{ mutex *redsync.Mutex }

func (c redsyncClient) Lock(ctx context.Context) error { return c.mutex.LockContext(ctx) }

func (c redsyncClient) Unlock(ctx context.Context) error {
	_, err := c.mutex.UnlockContext(ctx)
	return err
}

// redislockPause is the pause between tries. The library has no default.
const redislockPause = 50 * time.Millisecond

// openRedislock opens bsm/redislock over go-redis.
func openRedislock(addr string, l Lease) (Fleet, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	return &redislockFleet{rdb, redislock.New(rdb), l}, nil
}

type redislockFleet struct {
	rdb    *redis.Client
	client *redislock.Client
	lease  Lease
}

func (f *redislockFleet) Client(key string) Client {
	return &redislockClient{redislockFleet: f, key: key}
}

func (f *redislockFleet) Close() error { return f.rdb.Close() }

type redislockClient struct {
	*redislockFleet
	key  string
	lock *redislock.Lock
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
