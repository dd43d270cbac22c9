package loadgen

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// janitor sees to it that nothing of a run stays behind: what has no time to
// live of its own gets one, and at the end everything goes. All methods may be
// called from any goroutine.
type janitor struct {
	servers []redis.UniversalClient
	lock    Lock
	keys    []string
	oracle  *oracle
	guard   time.Duration // time to live of what has none
	idle    time.Duration // computing time of the servers before the run

	prefix string
	id     string
	mark   string // the key that says whose the prefix is; "" = no need

	spared map[string]bool // keys that were there before: somebody else's

	touched []sync.Once // by key; nil: all keys have a time to live

	mu      sync.Mutex
	guarded []string
}

// minGuard is the shortest time to live of what has none of its own. It is also
// how long such a key outlives a run that was killed.
const minGuard = 10 * time.Second

func newJanitor(s Scenario, on Servers, o *oracle) *janitor {
	j := &janitor{
		servers: on.all(s.Lock.Kind), lock: s.Lock, keys: s.Keys.names(), oracle: o,
		guard: max(minGuard, 3*s.Lock.TTL), prefix: s.Keys.Prefix, id: fmt.Sprintf("%016x", rand.Uint64()),
	}
	if j.withoutTTL(j.keys[0]) != none {
		j.touched = make([]sync.Once, s.Keys.N)
	}
	return j
}

// touch is called before a key is locked. The first time it waits until what the
// lock would leave behind without a time to live has one.
func (j *janitor) touch(ctx context.Context, key int) {
	if j.touched != nil {
		j.touched[key].Do(func() { j.firstTouch(ctx, key) })
	}
}

// spare looks which of the keys are there already, and leaves those alone. A
// server that does not answer has nobody's.
func (j *janitor) spare() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	j.spared = make(map[string]bool)
	for _, rdb := range j.servers {
		for part := range slices.Chunk(j.keys, batch) {
			pipe := rdb.Pipeline()
			there := make(map[string]*redis.IntCmd)
			for _, key := range part {
				for _, name := range j.names(key) {
					there[name] = pipe.Exists(ctx, name)
				}
			}
			if _, err := pipe.Exec(ctx); err != nil {
				break
			}
			for name, n := range there {
				if n.Val() > 0 {
					j.spared[name] = true
				}
			}
		}
	}
}

// claim takes the prefix for this run: of two that share one, the first to end would
// delete what the other holds. A server that does not answer is nobody's.
func (j *janitor) claim(ctx context.Context) error {
	j.mark = j.prefix + "run"
	for _, rdb := range j.servers {
		soon, cancel := context.WithTimeout(ctx, cleanWithin)
		claimed, err := rdb.SetNX(soon, j.mark, j.id, minGuard).Result()
		cancel()
		if err == nil && !claimed {
			j.mark = ""
			return fmt.Errorf("another run uses the prefix %q: take another one, or wait until it is over (%s after it was killed)", j.prefix, minGuard)
		}
	}
	return nil
}

// restart begins to measure what the servers need.
func (j *janitor) restart() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.idle = j.computed(context.Background())
}

// firstTouch begins to guard a key. The counter of fencing numbers is made here,
// with a time to live.
func (j *janitor) firstTouch(ctx context.Context, key int) {
	guarded := j.withoutTTL(j.keys[key])
	if j.spared[guarded] {
		return
	}
	j.mu.Lock()
	j.guarded = append(j.guarded, guarded)
	j.mu.Unlock()
	if !j.lock.Fence {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	for _, rdb := range j.servers {
		// Where that fails the lock fails, too, and is heard.
		_ = rdb.SetNX(ctx, guarded, 0, j.guard).Err()
	}
}

// none is what would stay for ever of most locks.
const none = ""

// withoutTTL returns the key of a lock that would stay for ever, if one would. SETNX without EXPIRE is left as it is: that it stays is its flaw.
func (j *janitor) withoutTTL(key string) string {
	switch {
	case j.lock.Fence:
		return companion(key, "fence")
	case j.lock.Kind == "classic/getset", j.lock.Kind == "classic/stamp-rw":
		return key
	}
	return none
}

// companion returns the name of a key beside a lock, as package lock makes it.
func companion(key, what string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open+1:], '}') > 0 {
		return key + "::" + what
	}
	return "{" + key + "}:" + what
}

// work keeps what has no time to live from staying for ever, and from vanishing
// while the run goes on, until ctx ends.
func (j *janitor) work(ctx context.Context) {
	j.mu.Lock()
	j.idle = j.computed(ctx)
	j.mu.Unlock()
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		j.mu.Lock()
		keys := j.guarded[:len(j.guarded):len(j.guarded)]
		j.mu.Unlock()
		for _, rdb := range j.servers {
			pipe := rdb.Pipeline()
			for _, key := range keys {
				pipe.PExpire(ctx, key, j.guard)
			}
			if j.mark != "" {
				pipe.PExpire(ctx, j.mark, minGuard)
			}
			if len(keys) > 0 || j.mark != "" {
				_, _ = pipe.Exec(ctx) // again in a second
			}
		}
	}
}

// spent returns how long the servers have computed since the beginning.
func (j *janitor) spent() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(j.computed(context.Background())-j.idle, 0)
}

// computed returns how long the servers have computed so far.
func (j *janitor) computed(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return cpu(ctx, j.servers)
}

// cleanWithin bounds the removal of keys from servers that do not answer. What
// is left then ends with its time to live.
const cleanWithin = 2 * time.Second

// clean removes all keys of the run.
func (j *janitor) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	_ = j.deleteAll(ctx)
	for _, rdb := range j.servers {
		if j.mark != "" {
			_ = rdb.Del(ctx, j.mark).Err()
		}
	}
}

// deleteAll removes the keys that were ever wanted, with all that stands beside
// them, but for those that were there before.
func (j *janitor) deleteAll(ctx context.Context) error {
	return j.delete(ctx, j.oracle.touched(), j.names)
}

// flush removes the locks themselves, with their queues, and leaves the counters of
// fencing numbers.
func (j *janitor) flush(ctx context.Context) error {
	return j.delete(ctx, j.oracle.touched(), func(key string) []string {
		return slices.DeleteFunc(j.names(key), func(name string) bool { return name == companion(key, "fence") })
	})
}

// steal removes one lock, as a DEL by a stranger does: what stands beside it stays.
func (j *janitor) steal(ctx context.Context, key string) error {
	return j.delete(ctx, []string{key}, func(key string) []string {
		if j.lock.Kind == "classic/two-key-rw" {
			return j.names(key)
		}
		return []string{key}
	})
}

// batch is how many locks are removed by one pipeline.
const batch = 500

func (j *janitor) delete(ctx context.Context, keys []string, names func(key string) []string) error {
	var failed error
	for _, rdb := range j.servers {
		for part := range slices.Chunk(keys, batch) {
			pipe := rdb.Pipeline()
			for _, key := range part {
				for _, name := range names(key) {
					if !j.spared[name] {
						pipe.Del(ctx, name)
					}
				}
			}
			if _, err := pipe.Exec(ctx); err != nil {
				failed = err
				break
			}
		}
	}
	return failed
}

// names returns everything that a lock may be made of.
func (j *janitor) names(key string) []string {
	switch j.lock.Kind {
	case Fair:
		return []string{key, companion(key, "fence"), companion(key, "queue"), companion(key, "alive")}
	case "classic/two-key-rw":
		return []string{key + ":readLock", key + ":writeLock"}
	}
	return []string{key, companion(key, "fence")}
}
