// Redisson-form is a client of locktop load --exec that sends the commands of Redisson's
// RLock. It is the form of that lock, not the library, which needs a JVM: a hash with one
// field for the client and its thread, a message to the waiters after a release, and a
// watchdog that renews the lock after a third of lockWatchdogTimeout. Nobody tells the
// holder of a loss. It has no latch for the retry of a release, and does not ask whether
// the replicas have the lock.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/lab/clients/line"
	"locktop/loadgen/external"
)

func main() {
	line.Library{Name: "redisson-form 3", Kinds: []string{"mutex"}, Renews: true, Open: open}.Serve()
}

var (
	// acquire counts a field up, or returns the TTL of another client's hash.
	acquire = redis.NewScript(`
		if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
			return redis.call('PTTL', KEYS[1])
		end
		redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
		redis.call('PEXPIRE', KEYS[1], ARGV[1])
		return false`)
	renew = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[1])`)
	// release counts the field down. The last release deletes the hash and wakes the waiters.
	release = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
		if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
			redis.call('PEXPIRE', KEYS[1], ARGV[1])
			return 0
		end
		redis.call('DEL', KEYS[1])
		redis.call('PUBLISH', KEYS[2], 0)
		return 1`)
)

// watched is a lock that a thread of this client acquires.
type watched struct {
	rdb      *redis.Client
	keys     []string // the lock and its channel
	watchdog time.Duration
	owner    string // client:thread
	deadline time.Time
	renewed  chan time.Time
}

func open(urls []string) (line.Lock, error) {
	o, err := redis.ParseURL(urls[0])
	if err != nil {
		return nil, err
	}
	o.MaxRetries = -1 // a second try would be a second hold of the thread
	rdb, client := redis.NewClient(o), uuid.NewString()
	var threads atomic.Int64
	return func(ctx context.Context, key string, ttl time.Duration) (external.Hold, error) {
		w := &watched{
			rdb: rdb, keys: []string{key, channel(key)}, watchdog: ttl,
			owner: fmt.Sprint(client, ":", threads.Add(1)), renewed: make(chan time.Time),
		}
		if err := w.lock(ctx); err != nil {
			return external.Hold{}, err
		}
		held, stop := context.WithCancel(context.Background())
		go w.watch(held)
		return external.Hold{Deadline: w.deadline, Renewed: w.renewed, Unlock: func(ctx context.Context) error {
			defer stop()
			return w.unlock(ctx)
		}}, nil
	}, nil
}

// channel returns the channel of a lock, in its slot.
func channel(key string) string {
	if !strings.Contains(key, "{") {
		key = "{" + key + "}"
	}
	return "redisson_lock__channel:" + key
}

// lock subscribes after the first refusal, and then waits for a message or the end of the
// other client's TTL.
func (w *watched) lock(ctx context.Context) error {
	if other, err := w.try(ctx); other == 0 || err != nil {
		return err
	}
	releases := w.rdb.Subscribe(ctx, w.keys[1])
	defer releases.Close()
	if _, err := releases.Receive(ctx); err != nil {
		return err
	}
	for {
		other, err := w.try(ctx)
		if other == 0 || err != nil {
			return err
		}
		select {
		case <-releases.Channel():
		case <-time.After(other):
		case <-ctx.Done():
			return external.ErrHeld
		}
	}
}

// try returns the TTL of the lock if another client holds it, otherwise 0.
func (w *watched) try(ctx context.Context) (time.Duration, error) {
	asked := time.Now()
	ms, err := acquire.Run(ctx, w.rdb, w.keys[:1], w.watchdog.Milliseconds(), w.owner).Int64()
	if errors.Is(err, redis.Nil) {
		w.deadline = asked.Add(w.watchdog)
		return 0, nil
	}
	return max(time.Duration(ms)*time.Millisecond, time.Millisecond), err
}

// watch is the watchdog. It ends without a word when the lock is lost.
func (w *watched) watch(held context.Context) {
	defer close(w.renewed)
	for {
		select {
		case <-held.Done():
			return
		case <-time.After(w.watchdog / 3):
		}
		asked := time.Now()
		mine, err := renew.Run(held, w.rdb, w.keys[:1], w.watchdog.Milliseconds(), w.owner).Bool()
		switch {
		case err != nil: // the next one may succeed
		case mine:
			w.renewed <- asked.Add(w.watchdog)
		default:
			return
		}
	}
}

// unlock returns external.ErrLost where RLock throws an IllegalMonitorStateException.
func (w *watched) unlock(ctx context.Context) error {
	err := release.Run(ctx, w.rdb, w.keys, w.watchdog.Milliseconds(), w.owner).Err()
	if errors.Is(err, redis.Nil) {
		return external.ErrLost
	}
	return err
}
