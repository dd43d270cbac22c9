package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// foreignValues are commands that store values of other software, with KEY as the name.
var foreignValues = map[string]string{
	"empty string":                           "SET KEY|",
	"number":                                 "SET KEY|1",
	"token of another library":               "SET KEY|6ba7b810-9dad-41d1-80b4-00c04fd430c8",
	"text":                                   "SET KEY|" + strings.Repeat("text ", 1000),
	"document with a field v":                "HSET KEY|v|1|title|x|body|y|author|z|rev|7",
	"version alone":                          "HSET KEY|v|1",
	"read/write lock before its marker":      "HSET KEY|v|1|r:web-1:31~0193a3b2-7c1e-7000-8000-000000000051|1:1999999999000",
	"writer before its marker":               "HSET KEY|v|1|w|1:1999999999000:web-1:31~0193a3b2-7c1e-7000-8000-000000000051",
	"read/write lock of a later version":     "HSET KEY|v|locktop-rw-2|x|1",
	"fields of a read/write lock":            "HSET KEY|q|1:a~000000000001|s|1|t|0:1",
	"fields of a read/write lock that ended": "HSET KEY|r:a|1:1|r:b|1:1|w|1:1:c",
	"user":                                   "HSET KEY|name|Zoe|visits|12",
	"hash of one text":                       "HSET KEY|name|Zoe",
	"hash of a zero":                         "HSET KEY|total|0",
	"hash of a negative number":              "HSET KEY|balance|-3",
	"hash of a fraction":                     "HSET KEY|price|1.5",
	"hash of a count":                        "HSET KEY|visits|12",
	"hash of 150 fields":                     "HSET KEY" + manyFields(150),
	"lock of Redisson":                       "HSET KEY|6ba7b810-9dad-41d1-80b4-00c04fd430c8:54|1",
	"read lock of Redisson":                  "HSET KEY|mode|read|6ba7b810-9dad-41d1-80b4-00c04fd430c8:54|1",
	"write lock of Redisson":                 "HSET KEY|mode|write|6ba7b810-9dad-41d1-80b4-00c04fd430c8:54:write|1",
	"lock of ioredfour":                      "HSET KEY|index|7",
	"leaderboard":                            "ZADD KEY|100|alice|200|bob|300|carol",
	"queue of times":                         "ZADD KEY|1|a|9000000000000000|z",
	"semaphore of npm":                       "ZADD KEY|1999999999000|6ba7b810-9dad-41d1-80b4-00c04fd430c8|1|6ba7b810-9dad-41d1-80b4-00c04fd430c9",
	"semaphore before its marker":            "ZADD KEY|1|a|2|b|+inf|limit:3",
	"zset of limits":                         "ZADD KEY|1|limit:1|2|limit:2",
	"zset without an end":                    "ZADD KEY|1|a|+inf|end",
	"list":                                   "RPUSH KEY|a|b|c",
	"set":                                    "SADD KEY|a|b|c",
	"stream":                                 "XADD KEY|*|event|paid",
	"bitmap":                                 "SETBIT KEY|7|1",
	"HyperLogLog":                            "PFADD KEY|a|b",
	"positions":                              "GEOADD KEY|13.4|52.5|Berlin",
}

func manyFields(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "|field%d|%d", i, i)
	}
	return all.String()
}

// storeForeign stores a foreign value.
func (r *rig) storeForeign(command, key string) {
	r.Helper()
	verb, rest, _ := strings.Cut(command, " KEY")
	args := []any{verb, key}
	for word := range strings.SplitSeq(strings.TrimPrefix(rest, "|"), "|") {
		args = append(args, word)
	}
	r.must(r.rdb.Do(ctx, args...).Err())
}

// stored returns a key as it is stored, and whether it expires.
func (r *rig) stored(key string) string {
	r.Helper()
	dump, err := r.rdb.Dump(ctx, key).Result()
	if err != redis.Nil {
		r.must(err)
	}
	return fmt.Sprintf("%q expires: %t", dump, r.rdb.PTTL(ctx, key).Val() > 0)
}

// countHashes are the foreign values that a Reentrant cannot tell from its own lock: its layout is
// that of other libraries, too.
var countHashes = []string{"version alone", "hash of a count", "lock of Redisson", "lock of ioredfour"}

// lookups returns the handles of a key that tell the holder, by kind.
func lookups(c *client, key string, o lock.Options) map[string]lock.Locker {
	return map[string]lock.Locker{
		"mutex": c.Mutex(key, o), "fair": c.Fair(key, o), "all": c.All([]string{key, key + "-too"}, o),
		"reentrant": c.Reentrant(key, o), "writer": c.RW(key, o).Writer(), "semaphore": c.Semaphore(key, 1, o),
	}
}

// Scenario 9. No call of any kind of lock changes a key that holds something else. A lock that other software
// may have stored counts as held. For everything else the calls return ErrWrongType, Holder, too.
func TestAForeignValueIsLeftAlone(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		q := &quorum{check.Must(lock.NewQuorum([]*redis.Client{r.rdb}, lock.QuorumConfig{NodeTimeout: 5 * time.Second}))(r)}
		r.Cleanup(func() { q.Close() })
		o := lock.Options{TTL: time.Minute}
		of := maps.Clone(kinds)
		of["redlock"] = func(_ *client, key string, o lock.Options) lock.Locker { return q.Redlock(key, o) }
		var all sync.WaitGroup
		for kind, of := range of {
			for name, command := range foreignValues {
				all.Go(func() {
					key := kind + ": " + name
					lost := r.locked(of(c, key, o)) // the value takes the place of this lock
					r.must(r.rdb.Del(ctx, key).Err())
					r.storeForeign(command, key)
					before, want := r.stored(key), lock.ErrWrongType
					if stringKind := slices.Contains([]string{"mutex", "fair", "all", "scattered", "redlock"}, kind); stringKind && r.rdb.Type(ctx, key).Val() == "string" ||
						kind == "reentrant" && slices.Contains(countHashes, name) {
						want = lock.ErrHeld
					}
					check.ErrorIs(r, tried(of(c, key, o).TryLock(ctx)), want, "TryLock of %s", key)
					limit := 10 * time.Second
					if want == lock.ErrHeld {
						limit = 20 * time.Millisecond // on a busy machine it ends before the first reply
					}
					err := tried(of(c, key, o).Lock(r.soon(limit)))
					check.True(r, errors.Is(err, want) || want == lock.ErrHeld && errors.Is(err, context.DeadlineExceeded), "Lock of %s: %v", key, err)
					check.True(r, lost.Extend(ctx, time.Minute) != nil, "%s is extended", key)
					check.True(r, lost.Unlock(ctx) != nil, "%s is unlocked", key)
					looks := lookups(c, key, o)
					looks["redlock"] = q.Redlock(key, o)
					if look := looks[kind]; look != nil {
						held, err := look.Holder(ctx)
						check.True(r, (held != nil) == (want == lock.ErrHeld), "%s is held by %v", key, held)
						check.True(r, want == lock.ErrHeld || errors.Is(err, want), "Holder of %s: %v", key, err)
					}
					check.Equal(r, r.stored(key), before, "%s was touched", key)
				})
			}
		}
		for name, command := range foreignValues {
			all.Go(func() {
				key := "limit: " + name
				r.storeForeign(command, key)
				before, s := r.stored(key), c.Semaphore(key, 2, o)
				_, _, err := s.Permits(ctx)
				check.ErrorIs(r, err, lock.ErrWrongType, "Permits of %s", key)
				check.ErrorIs(r, s.SetLimit(ctx, 3), lock.ErrWrongType, "SetLimit of %s", key)
				check.ErrorIs(r, s.SetLimit(ctx, 0), lock.ErrWrongType, "SetLimit of %s to 0", key)
				check.Equal(r, r.stored(key), before, "%s was touched", key)
			})
		}
		all.Wait()
	})
}

// Scenario 9. The kinds with other layouts are foreign to each other: a look or a try never frees a held lock.
func TestALockOfAnotherKindIsLeftAlone(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		layout := map[string]string{"reader": "rw", "writer": "rw", "reentrant": "reentrant", "semaphore": "semaphore"} // the others: a string
		for holder, of := range kinds {
			lease := r.locked(of(c, holder, lock.Options{TTL: time.Hour})) // no renewal changes it
			for kind, other := range kinds {
				if layout[kind] == layout[holder] {
					continue
				}
				before := r.stored(holder)
				check.ErrorIs(r, tried(other(c, holder, lock.Options{}).TryLock(ctx)), lock.ErrWrongType, "%s of a %s", kind, holder)
				for kind, look := range lookups(c, holder, lock.Options{}) {
					if layout[kind] != layout[holder] {
						check.ErrorIs(r, tried(look.Holder(ctx)), lock.ErrWrongType, "Holder of a %s by a %s", holder, kind)
					}
				}
				check.Equal(r, r.stored(holder), before, "a %s by a %s", holder, kind)
			}
			r.must(lease.Unlock(ctx))
		}
	})
}

// A counter that is no number keeps its value, and a withdrawal changes no hash without the marker, even if a
// field looks like the claim of the process.
func TestScriptsThatFollowAnAcquireLeaveForeignValuesAlone(t *testing.T) {
	onRedis(t, func(r *rig) {
		r.storeForeign("SET KEY|text", "counter")
		r.storeForeign("HSET KEY|q|1999999999000:a~000000000001|name|Zoe", "hash")
		counter, hash := r.stored("counter"), r.stored("hash")
		check.True(r, r.rdb.Eval(ctx, source(r, "redlock_raise.lua"), []string{"counter"}, 7).Err() != nil, "a text is raised")
		withdraw := source(r, "waiters_common.lua", "tell.lua", "waiters_release.lua", "rw_common.lua", "rw_next.lua", "rw_withdraw.lua")
		reply, err := r.rdb.Eval(ctx, withdraw, []string{"hash"}, "a~000000000001", "open", "{hash}:free", "a~000000000001", "1").Int()
		check.True(r, err == nil && reply == 0, "the withdrawal returns %d, %v", reply, err)
		check.Equal(r, r.stored("counter"), counter, "the counter")
		check.Equal(r, r.stored("hash"), hash, "the hash")
	})
}
