package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen/oracle"
)

// janitor ensures that a run leaves no keys on the servers. It gives a TTL to keys that
// have none, and deletes all keys at the end. All methods are safe for concurrent use.
type janitor struct {
	servers []RedisClient
	lock    Lock
	keys    []string
	oracle  *oracle.Oracle
	guard   time.Duration // TTL for keys without one
	idle    time.Duration // CPU time of the servers before the run

	prefix   string
	claimKey string // key that claims the prefix; "" = not claimed

	existing map[string]bool // keys that existed before the run; never deleted

	role     role
	shared   bool        // others may use keys of the same names, and this process is the only one of the run that deletes keys
	prepared []sync.Once // by key number; nil: all keys have a TTL

	mu      sync.Mutex
	guarded []string
}

// minGuard is the shortest TTL for keys without one. After the process is killed, such
// a key expires after at least this time.
const minGuard = 10 * time.Second

func newJanitor(s Scenario, c fleetConfig, o *oracle.Oracle) *janitor {
	j := &janitor{
		servers: c.servers.all(s.Lock.Kind), lock: s.Lock, keys: s.Keys.names(), oracle: o, role: c.role, shared: c.shared && c.role.agent == 0,
		guard: max(minGuard, 3*s.Lock.TTL), prefix: s.Keys.Prefix,
	}
	if j.withoutTTL(j.keys[0]) != none {
		j.prepared = make([]sync.Once, s.Keys.N)
	}
	return j
}

// recordExisting records the keys that exist already, so that the run does not delete them. It
// skips a server that does not answer.
func (j *janitor) recordExisting() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	existing := make(map[string]bool)
	_ = j.each(ctx, j.keys, j.remains, redis.Pipeliner.Exists, func(name string, n int64) {
		if n > 0 {
			existing[name] = true
		}
	})
	j.existing = existing
}

// each sends a command for each name of some keys, except existing ones, to each server, in batches, and
// yields the replies. It returns the last error, which ends the commands to its server.
func (j *janitor) each(ctx context.Context, keys []string, names func(key string) []string, command func(redis.Pipeliner, context.Context, ...string) *redis.IntCmd, yield func(name string, n int64)) (failed error) {
	for _, rdb := range j.servers {
		for part := range slices.Chunk(keys, batch) {
			pipe, sent := rdb.Pipeline(), make(map[string]*redis.IntCmd)
			for _, key := range part {
				for _, name := range names(key) {
					if !j.existing[name] {
						sent[name] = command(pipe, ctx, name)
					}
				}
			}
			_, err := pipe.Exec(ctx)
			for name, n := range sent {
				yield(name, n.Val())
			}
			if err != nil {
				failed = err
				break
			}
		}
	}
	return failed
}

// claim claims the prefix for this run, if others may use it. Otherwise, of two runs with the same prefix,
// the first to end would delete the keys of the other. It skips a server that does not
// answer. The value of the key is a sentence, which no lock library writes: a random
// value looked like a lock that is renewed forever.
func (j *janitor) claim(ctx context.Context) error {
	if !j.shared {
		return nil
	}
	j.recordExisting()
	j.claimKey = j.prefix + "run"
	host, _ := os.Hostname() // only for a person who looks at the key
	value := fmt.Sprintf("claimed by a locktop load, process %d on %s", os.Getpid(), host)
	for _, rdb := range j.servers {
		soon, cancel := context.WithTimeout(ctx, cleanWithin)
		claimed, err := rdb.SetNX(soon, j.claimKey, value, minGuard).Result()
		cancel()
		if err == nil && !claimed {
			j.claimKey = ""
			return fmt.Errorf("another run uses the prefix %q: take another one, or wait until it is over (%s after it was killed)", j.prefix, minGuard)
		}
	}
	return nil
}

// resetCPU starts the measurement of the servers' CPU time.
func (j *janitor) resetCPU(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.idle = cpu(ctx, j.servers)
}

// observe prepares the keys that a client asks for. The first hold of a key waits for this.
func (j *janitor) observe(s step, r *round) {
	if s == asked {
		for _, key := range r.keys {
			j.prepared[key].Do(func() { j.prepareKey(r.stay, key) })
		}
	}
}

// prepareKey registers a key for work. It creates the fence counter with a TTL.
func (j *janitor) prepareKey(ctx context.Context, key int) {
	guarded := j.withoutTTL(j.keys[key])
	if j.existing[guarded] {
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
		// If this fails, the acquire fails, too, and reports the error.
		_ = rdb.SetNX(ctx, guarded, 0, j.guard).Err()
	}
}

// none is the result of withoutTTL if all keys of a lock have a TTL.
const none = ""

// withoutTTL returns the key of a lock that has no TTL. A key of SETNX without EXPIRE
// is not included: to stay is its flaw.
func (j *janitor) withoutTTL(key string) string {
	switch {
	case j.lock.Fence:
		return companion(key, "fence")
	case j.lock.Kind == "classic/getset":
		return key
	}
	return none
}

// companion returns the name of a second key of a lock, in the form of package lock.
func companion(key, what string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open+1:], '}') > 0 {
		return key + "::" + what
	}
	return "{" + key + "}:" + what
}

// work renews the TTLs of the registered keys and of the claim every second, until ctx
// ends.
func (j *janitor) work(ctx context.Context) {
	j.resetCPU(ctx)
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
			if j.claimKey != "" {
				pipe.PExpire(ctx, j.claimKey, minGuard)
			}
			if len(keys) > 0 || j.claimKey != "" {
				_, _ = pipe.Exec(ctx) // the next second tries again
			}
		}
	}
}

// cpuUsed returns the CPU time of the servers since the start of the run, or since
// resetCPU.
func (j *janitor) cpuUsed() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(cpu(context.Background(), j.servers)-j.idle, 0)
}

// cleanWithin bounds the deletion of keys. Keys that are left expire.
const cleanWithin = 2 * time.Second

// clean deletes all keys of the run, if no other process does.
func (j *janitor) clean() {
	if j.role.agent > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	_, _ = j.deleteAll(ctx)
	for _, rdb := range j.servers {
		if j.claimKey != "" {
			_ = rdb.Del(ctx, j.claimKey).Err()
		}
	}
}

// deleteAll deletes all keys of the locks that clients have asked for, except existing
// ones, and returns their number.
func (j *janitor) deleteAll(ctx context.Context) (deleted int64, err error) {
	if j.namesItsKeys() {
		return j.deleteMatching(ctx, "*"+glob(j.prefix)+"*", func(name string) bool { return name != j.claimKey })
	}
	return j.delete(ctx, j.touched(), j.remains)
}

// namesItsKeys reports whether only the library of client processes knows the names of the
// keys, and the prefix is a random one: no key of another program contains it.
func (j *janitor) namesItsKeys() bool { return j.lock.Kind == Exec && j.existing == nil }

// touched returns the keys that clients have asked for. A keeper does not know them.
func (j *janitor) touched() []string {
	if j.role.keeper {
		return j.keys
	}
	return j.oracle.Touched()
}

// flush deletes these locks with their queues, but not their fence counters, and returns
// the number of deleted keys.
func (j *janitor) flush(ctx context.Context) (deleted int64, err error) {
	if j.lock.Kind == Exec {
		return j.deleteAll(ctx)
	}
	return j.delete(ctx, j.touched(), func(key string) []string {
		return slices.DeleteFunc(j.names(key), func(name string) bool { return name == companion(key, "fence") })
	})
}

// deleteLock deletes the key of one lock, like a DEL by another program, and returns the
// number of deleted keys. Other keys of the lock stay, if their names are known.
func (j *janitor) deleteLock(ctx context.Context, key string) (deleted int64, err error) {
	if j.namesItsKeys() {
		return j.deleteMatching(ctx, "*"+glob(key)+"*", func(name string) bool { return isOf(name, key) })
	}
	return j.delete(ctx, []string{key}, func(key string) []string {
		if j.lock.Kind == "classic/two-key-rw" {
			return j.names(key)
		}
		return []string{key}
	})
}

// batch is the number of locks per pipeline.
const batch = 500

// isOf reports whether a name contains a key, and not another key that begins with it: 1 is
// not in 12.
func isOf(name, key string) bool {
	_, rest, found := strings.Cut(name, key)
	return found && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

func (j *janitor) delete(ctx context.Context, keys []string, names func(key string) []string) (deleted int64, failed error) {
	failed = j.each(ctx, keys, names, redis.Pipeliner.Del, func(_ string, n int64) { deleted += n })
	return deleted, failed
}

// deleteMatching deletes the keys that match a pattern and a condition. The keys of client
// processes have names that only their library knows.
func (j *janitor) deleteMatching(ctx context.Context, pattern string, condition func(name string) bool) (deleted int64, failed error) {
	for _, rdb := range j.servers {
		keys := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			if !condition(keys.Val()) {
				continue
			}
			n, err := rdb.Del(ctx, keys.Val()).Result()
			deleted, failed = deleted+n, cmp.Or(failed, err)
		}
		failed = cmp.Or(failed, keys.Err())
	}
	return deleted, failed
}

// remains returns all keys of a lock that may exist after a run: a process that was killed is
// still registered.
func (j *janitor) remains(key string) []string {
	if j.role.keeper {
		return append(j.names(key), companion(key, "waiters"))
	}
	return j.names(key)
}

// names returns all keys that a lock may have.
func (j *janitor) names(key string) []string {
	switch j.lock.Kind {
	case Fair:
		return []string{key, companion(key, "fence"), companion(key, "waiters")}
	case "classic/two-key-rw":
		return []string{key + ":readLock", key + ":writeLock"}
	}
	return []string{key, companion(key, "fence")}
}
