package contest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

const (
	rwName         = "locktop rw"
	redissonRWName = "redisson form"
)

// Goals of the read/write lock. All are ratios. Redisson's form lets newcomers overtake
// waiters, so that its rate is higher when clients are few, and its longest waits are
// longer.
const (
	rwRateGoal = 0.9 // acquires per second, to Redisson's form
	rwWaitGoal = 0.8 // p99 wait, to Redisson's form
	rwGapGoal  = 4.0 // longest gap, to the Mutex
)

// rwContenders returns the locks of B5. The Mutex does not tell readers from writers.
func rwContenders() []Contender {
	return []Contender{
		{Name: rwName, Open: openLocktopRW},
		{Name: redissonRWName, Open: openRedissonRW},
		{Name: mutexName, Open: openLocktop((*lock.Client).Mutex)},
	}
}

// readWrite measures a read/write lock that all clients want.
func readWrite(ctx context.Context, t *Testbed, size Size) (Result, error) {
	result := Result{
		Title: "B5: a read/write lock that all clients want",
		About: "All clients acquire one key, hold it, release it and want it again at once; every third acquire is a reader's. Each client is like a process of its own. The longest gap is the longest time in which no client acquired the lock: a lock that is free while clients wait shows there.",
	}
	clients, holds := []int{4, 32, 128}, []time.Duration{0, 300 * time.Microsecond, time.Millisecond}
	rounds, work := 3, Work{Warm: 500 * time.Millisecond, Length: 2 * time.Second}
	if size == Quick {
		clients, holds, rounds = []int{32}, []time.Duration{time.Millisecond}, 1
	}
	for _, n := range clients {
		for _, hold := range holds {
			work.Hold = hold
			s := Setting{Clients: n, Apart: true, Hot: true, ReadEvery: 3, Lease: longLease(), Work: work}
			all, err := t.runRounds(ctx, rwContenders(), rounds, s)
			cell := fmt.Sprintf("clients=%d hold=%v", n, hold)
			if err != nil {
				return result, fmt.Errorf("B5, %s: %w", cell, err)
			}
			result.Tables = append(result.Tables, rwTable(cell, all))
			result.Verdicts = append(result.Verdicts, rwVerdict(cell, all))
		}
	}
	return result, nil
}

func rwTable(cell string, all []Series) Table {
	return tableOf(cell, all, []column{
		{"acquires/s", exactly("%.0f", Sample.Rate)}, {"wait p50 ms", shortly(waitQuantile(0.5))}, {"p99 ms", shortly(waitQuantile(0.99))},
		{"longest ms", shortly(waitQuantile(1))}, {"longest gap ms", shortly(Sample.gap)}, {"commands", shortly(Sample.CommandCost)},
	})
}

func rwVerdict(cell string, all []Series) Verdict {
	v := Verdict{Name: "B5 " + cell + " rw"}
	rw, peer, mutex := seriesOf(all, rwName), seriesOf(all, redissonRWName), seriesOf(all, mutexName)
	v.atLeast("rate of redisson's form", rw.times(peer, Sample.Rate), rwRateGoal)
	v.atMost("p99", rw.times(peer, waitQuantile(0.99)), rwWaitGoal)
	v.atMost("longest gap of mutex", rw.times(mutex, Sample.gap), rwGapGoal)
	return v
}

// openLocktopRW opens the read/write lock of package lock.
func openLocktopRW(addr string, l Lease) (Process, error) {
	p, err := openLocktop(func(c *lock.Client, key string, o lock.Options) (lock.Locker, error) {
		_, writer, err := c.RW(key, o)
		return writer, err
	})(addr, l)
	if err != nil {
		return p, err
	}
	readers, err := openLocktop(func(c *lock.Client, key string, o lock.Options) (lock.Locker, error) {
		reader, _, err := c.RW(key, o)
		return reader, err
	})(addr, l)
	if err != nil {
		return p, errors.Join(err, p.Close())
	}
	p.Reader = readers.Client
	closeWriters := p.Close
	p.Close = func() error { return errors.Join(closeWriters(), readers.Close()) }
	return p, nil
}

// openRedissonRW opens the form of Redisson's RReadWriteLock, which needs a JVM: a hash
// with a mode and one field for each thread, a key with the lease of each reader, and a
// message to the waiters when the lock becomes free.
func openRedissonRW(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	client := func(mode string) func(string) Client {
		return func(key string) Client {
			c := &redissonRW{
				rdb: rdb, mode: mode, owner: uuid.NewString() + ":1", ttl: l.TTL,
				keys: []string{key, "redisson_rwlock:{" + key + "}"},
			}
			return Client{Lock: c.lock, Unlock: c.unlock}
		}
	}
	return Process{Client: client("write"), Reader: client("read"), Close: rdb.Close}, nil
}

var (
	// redissonAcquire returns nil, or the TTL of the lock if another client excludes this one.
	redissonAcquire = redis.NewScript(`
		local mode = redis.call('HGET', KEYS[1], 'mode')
		if not mode then
			redis.call('HSET', KEYS[1], 'mode', ARGV[3])
		elseif mode ~= 'read' or ARGV[3] ~= 'read' then
			return redis.call('PTTL', KEYS[1])
		end
		redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
		if ARGV[3] == 'read' then
			redis.call('SET', KEYS[1] .. ':' .. ARGV[2] .. ':rwlock_timeout:1', 1, 'PX', ARGV[1])
		end
		redis.call('PEXPIRE', KEYS[1], ARGV[1])
		return false`)
	redissonRelease = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
			return false
		end
		if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then
			redis.call('HDEL', KEYS[1], ARGV[1])
		end
		if ARGV[2] == 'read' then
			redis.call('DEL', KEYS[1] .. ':' .. ARGV[1] .. ':rwlock_timeout:1')
		end
		if redis.call('HLEN', KEYS[1]) > 1 then
			return 0
		end
		redis.call('DEL', KEYS[1])
		redis.call('PUBLISH', KEYS[2], 0)
		return 1`)
)

// redissonRW is one thread.
type redissonRW struct {
	rdb         *redis.Client
	mode, owner string
	ttl         time.Duration
	keys        []string // the lock and its channel
}

// lock subscribes after the first refusal. It waits for a message or the end of the TTL.
func (c *redissonRW) lock(ctx context.Context) error {
	if other, err := c.try(ctx); other == 0 || err != nil {
		return err
	}
	releases := c.rdb.Subscribe(ctx, c.keys[1])
	defer releases.Close()
	if _, err := releases.Receive(ctx); err != nil {
		return err
	}
	messages := releases.Channel()
	for {
		other, err := c.try(ctx)
		if other == 0 || err != nil {
			return err
		}
		select {
		case <-messages:
		case <-time.After(other):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try returns the TTL of the lock if another client excludes this one, otherwise 0.
func (c *redissonRW) try(ctx context.Context) (time.Duration, error) {
	ms, err := redissonAcquire.Run(ctx, c.rdb, c.keys[:1], c.ttl.Milliseconds(), c.owner, c.mode).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return max(time.Duration(ms)*time.Millisecond, time.Millisecond), err
}

func (c *redissonRW) unlock(ctx context.Context) error {
	err := redissonRelease.Run(ctx, c.rdb, c.keys, c.owner, c.mode).Err()
	if errors.Is(err, redis.Nil) {
		return errLost
	}
	return err
}
