package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// ways are the ways in which an All acquires its keys: by one script, or by one for each
// slot of a cluster.
var ways = map[string]func(lock.Locker) lock.Locker{
	"one slot":      func(a lock.Locker) lock.Locker { return a },
	"several slots": lock.Scatter,
}

// bothWays runs f under a fake clock and on a redis-server, for each of the ways. all
// returns an All over keys.
func bothWays(t *testing.T, f func(r *rig, all func(c *client, o lock.Options, keys ...string) lock.Locker)) {
	t.Helper()
	beside(t)
	for name, way := range ways {
		sub(t, name, onBoth, func(r *rig) {
			f(r, func(c *client, o lock.Options, keys ...string) lock.Locker { return way(c.All(keys, o)) })
		})
	}
}

func TestAnAllHoldsEveryKeyWithOneToken(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		c, began := r.client(lock.Config{}), time.Now()
		a := all(c, lock.Options{TTL: 5 * time.Second}, "b", "a", "c")
		lease := r.locked(a)
		check.Equal(r, lease.Key(), "a, b, c", "the lease's key")
		for _, key := range []string{"a", "b", "c"} {
			r.holds(key, lease.Token())
			r.lives(key, 5*time.Second, began)
			r.refused(c.Mutex(key, lock.Options{}))
			r.refused(all(c, lock.Options{}, "x", key))
		}
		check.Equal(r, r.keys(), 3, "keys")
		began = time.Now()
		r.must(lease.Extend(ctx, time.Minute))
		for _, key := range []string{"a", "b", "c"} {
			r.lives(key, time.Minute, began)
		}
		r.must(lease.Unlock(ctx))
		check.Equal(r, r.keys(), 0, "keys left")
	})
}

// Scenario 14.
func TestAnAllIsHeldCompletelyOrNotAtAll(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		c := r.client(lock.Config{Owner: "holder"})
		for _, key := range []string{"a", "b", "c"} {
			lease := r.locked(c.Mutex(key, lock.Options{}))
			a := all(c, lock.Options{}, "a", "b", "c")
			held := r.heldBy(a)
			check.True(r, held.Key == key && held.Token == lease.Token() && held.Owner() == "holder", "got %v, want the holder of %s", held, key)
			r.until("the other keys to be free", func() bool { return r.keys() == 1 })
			if h, err := a.Holder(ctx); err != nil || h == nil || h.Key != key || h.Token != lease.Token() {
				r.Errorf("the holder is %v, %v", h, err)
			}
			r.must(lease.Unlock(ctx))
		}
		h, err := all(c, lock.Options{}, "a", "b").Holder(ctx)
		check.True(r, h == nil && err == nil, "free keys are held by %v, %v", h, err)
		r.must(r.rdb.HSet(ctx, "b", "field", 1).Err())
		if _, err := all(c, lock.Options{}, "a", "b", "c").TryLock(ctx); !errors.Is(err, lock.ErrWrongType) && !r.fake {
			r.Errorf("got %v, want ErrWrongType", err)
		}
		r.until("the other keys to be free", func() bool { return r.keys() == 1 })
	})
}

func TestAnAllRefusesBadArguments(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.link.Refuse(errors.New("nothing must be sent"))
		c := r.client(lock.Config{})
		many := make([]string, 101)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for _, bad := range []struct {
			keys []string
			o    lock.Options
			text string
		}{
			{nil, lock.Options{}, "at least one"},
			{many, lock.Options{}, "at most 100"},
			{[]string{"a"}, lock.Options{Fence: true}, "Options.Fence"},
			{[]string{"a"}, lock.Options{Replicas: 1}, "Options.Replicas"},
			{[]string{"a"}, lock.Options{TTL: 1}, "TTL"},
		} {
			_, err := c.Client.All(bad.keys, bad.o)
			check.True(r, errors.Is(err, lock.ErrArgument) && strings.Contains(err.Error(), bad.text) && !strings.Contains(err.Error(), "\n"),
				"%d keys, %+v: got %v", len(bad.keys), bad.o, err)
		}
	})
}

// A transfer from an account to the same account.
func TestAnAllCountsAKeyOnce(t *testing.T) {
	bothWays(t, func(r *rig, all func(c *client, o lock.Options, keys ...string) lock.Locker) {
		c := r.client(lock.Config{})
		for keys, names := range map[string][]string{"a": {"a", "a"}, "a, b": {"b", "a", "b"}} {
			lease := r.locked(all(c, lock.Options{}, names...))
			check.True(r, lease.Key() == keys && r.keys() == int64(len(strings.Split(keys, ", "))),
				"%q are %d keys, %q", names, r.keys(), lease.Key())
			r.must(lease.Extend(ctx, time.Minute))
			r.must(lease.Unlock(ctx))
			check.Equal(r, r.keys(), 0, "%q: keys left", names)
		}
	})
}

// A waiter for one of the keys is woken when an All is released, and the other way round. So are those
// of a mutex and of a fair lock.
func TestAnAllAndTheLocksOfItsKeysWakeEachOther(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		o := lock.Options{TTL: time.Minute}
		holder, _ := r.process("holder")
		waiting, _ := r.process("waiting")
		for _, key := range []string{"b", "a", "c"}[:testtier.Size(1, 3, 3)] {
			for _, pair := range [][2]lock.Locker{
				{all(holder, o, "a", "b", "c"), waiting.Mutex(key, o)},
				{holder.Mutex(key, o), all(waiting, o, "a", "b", "c")},
				{all(holder, o, "a", "b", "c"), waiting.Fair(key, o)},
				{holder.Fair(key, o), all(waiting, o, "a", "b", "c")},
				{all(holder, o, "a", "b", "c"), all(waiting, o, key, "other")},
				{all(holder, o, key, "other"), all(waiting, o, "a", "b", "c")},
				{holder.Mutex(key, o), waiting.Fair(key, o)},
				{holder.Fair(key, o), waiting.Mutex(key, o)},
			} {
				lease := r.locked(pair[0])
				next := lockAsync(ctx, pair[1])
				r.until("a registered waiter", func() bool { return r.rdb.ZCard(ctx, "{"+key+"}:waiters").Val() == 1 })
				r.passesOn(lease, next, 0, "%s, a %T behind a %T: the waiter got the lock after", key, pair[1], pair[0])
				r.until("the end of all keys", func() bool { return r.keys() == 0 })
			}
		}
	})
}

// A release of a wakes an All that finds b held. Another process waits for a only: the
// All passes the wake-up on. Then it waits for b.
func TestAnAllPassesAWakeUpOn(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		o := lock.Options{TTL: time.Minute}
		holder, _ := r.process("holder")
		first, _ := r.process("first")
		second, _ := r.process("second")
		a, b := r.locked(holder.Mutex("a", o)), r.locked(holder.Mutex("b", o))
		both := lockAsync(ctx, all(first, o, "a", "b"))
		r.until("the All to wait for a", func() bool { return r.rdb.ZCard(ctx, "{a}:waiters").Val() == 1 })
		next := lockAsync(ctx, second.Mutex("a", o))
		r.until("two to wait for a", func() bool { return r.rdb.ZCard(ctx, "{a}:waiters").Val() == 2 })
		r.passesOn(a, next, 0, "the mutex was woken after")
		r.until("the All to wait for b", func() bool { return r.rdb.ZCard(ctx, "{b}:waiters").Val() == 1 })
		r.until("the end of the wait for a", func() bool { return r.rdb.ZCard(ctx, "{a}:waiters").Val() == 0 })
		r.passesOn(b, both, 0, "the All was woken after")
		r.until("the end of all keys", func() bool { return r.keys() == 0 })
	})
}

// The loss of one key ends the lease, and the other keys become free at once.
func TestAnAllThatLosesAKeyIsLost(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		c := r.client(lock.Config{})
		for _, key := range []string{"a", "b", "c"} {
			for name, lose := range map[string]func() error{
				"deleted":  func() error { return r.rdb.Del(ctx, key).Err() },
				"replaced": func() error { return r.rdb.Set(ctx, key, "stranger", 0).Err() },
			} {
				renewed := all(c, lock.Options{TTL: time.Minute, Renew: lock.Renew{Every: 50 * time.Millisecond}}, "a", "b", "c")
				lease := r.locked(renewed)
				r.must(lose())
				r.until("the end of the lease", func() bool { return !lease.Valid() })
				cause := context.Cause(lease.Context())
				check.True(r, cause == lock.ErrLost && !lease.Valid(), "%s was %s: the lease ended with %v", key, name, cause)
				r.rdb.Del(ctx, key)
				r.until("the release of the other keys", func() bool { return r.keys() == 0 })

				still := all(c, lock.Options{TTL: time.Minute, Renew: lock.Renew{Off: true}}, "a", "b", "c")
				for _, end := range []func(*lock.Lease) error{
					func(l *lock.Lease) error { return l.Unlock(ctx) },
					func(l *lock.Lease) error { return l.Extend(ctx, time.Hour) },
				} {
					lease = r.locked(still)
					r.must(lose())
					check.ErrorIs(r, end(lease), lock.ErrLost, "%s was %s", key, name)
					if name == "replaced" {
						r.holds(key, "stranger")
					}
					r.rdb.Del(ctx, key)
					r.until("the release of the other keys", func() bool { return r.keys() == 0 })
				}
			}
		}
	})
}

// The errors and the outcome of attempts with Wait.Poll.
func TestAnAllThatPolls(t *testing.T) {
	bothWays(t, func(r *rig, all func(*client, lock.Options, ...string) lock.Locker) {
		c := r.client(lock.Config{})
		held := r.locked(c.Mutex("b", lock.Options{}))
		o := lock.Options{Wait: lock.Wait{Poll: 10 * time.Millisecond, MaxTries: 3}}
		check.ErrorIs(r, tried(all(c, o, "a", "b").Lock(ctx)), lock.ErrHeld)
		o.Wait.MaxTries = 0
		next := lockAsync(ctx, all(c, o, "a", "b"))
		time.Sleep(20 * time.Millisecond)
		r.must(held.Unlock(ctx))
		r.must(r.won(next).Unlock(ctx))
		r.until("the end of all keys", func() bool { return r.keys() == 0 })
	})
}

// user returns a client of a user with these rules, and another one for its waiters.
func (r *rig) user(rules ...string) *client {
	r.Helper()
	r.must(r.rdb.ACLSetUser(ctx, "plain", append([]string{"reset", "on", ">secret"}, rules...)...).Err())
	rdb := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, Username: "plain", Password: "secret", DisableIdentity: true})
	r.Cleanup(func() { rdb.Close() })
	return r.over(rdb, lock.Config{Owner: "plain"})
}

// A user without permissions for the waiters and for PUBLISH can use an All.
func TestAnAllOfAUserWithFewPermissions(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		sub(t, name, onRedis, func(r *rig) {
			c := r.user("~a", "~b", "+@all", "-publish")
			o := lock.Options{TTL: time.Second}
			lease := r.locked(way(c.All([]string{"a", "b"}, o)))
			next := lockAsync(ctx, way(c.As("next").All([]string{"a", "b"}, o)))
			r.refused(way(c.All([]string{"b"}, o)))
			r.must(lease.Extend(ctx, time.Second))
			r.must(lease.Unlock(ctx))
			r.must(r.won(next).Unlock(ctx))
			check.Equal(r, r.keys(), 0, "keys left")
			check.ErrorIs(r, tried(way(c.All([]string{"a", "b", "forbidden"}, o)).TryLock(ctx)), lock.ErrNoPermission)
			r.until("the end of all keys", func() bool { return r.keys() == 0 })
		})
	}
}

// A user may call SET for a only. The attempt fails after it has set a, and undoes that.
func TestAnAllThatFailsHalfwayHoldsNothing(t *testing.T) {
	onRedis(t, func(r *rig) {
		if r.rdb.ACLSetUser(ctx, "plain", "(+set ~a)").Err() != nil {
			check.Require(r, strings.Contains(r.rdb.Info(ctx, "server").Val(), "redis_version:6."), "the server refuses an ACL rule with a selector")
			r.Skip("Redis 6 has no ACL selectors: put a redis-server of version 7 or later on PATH")
		}
		c := r.user("~*", "+@all", "-set", "(+set ~a)")
		check.ErrorIs(r, tried(c.All([]string{"a", "b"}, lock.Options{}).TryLock(ctx)), lock.ErrNoPermission)
		check.Equal(r, r.keys(), 0, "keys left")
	})
}

// An All to which a was handed finds b held: a is free at once.
func TestAnAllDoesNotKeepAKeyThatWasHandedToIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		near, _ := r.process("greedy")
		c, link := r.process("patient")
		greedy := near.Mutex("a", lock.Options{})
		lease := r.locked(greedy)
		waiting := lockAsync(ctx, c.All([]string{"a", "b"}, lock.Options{}))
		r.until("a registered waiter", func() bool { return r.rdb.ZCard(ctx, "{a}:waiters").Val() == 1 })
		link.Delay(func() time.Duration { return time.Millisecond })
		lease = r.passOver(9, greedy, lease)
		time.Sleep(5 * time.Millisecond)
		other := r.locked(near.Mutex("b", lock.Options{}))
		r.must(lease.Unlock(ctx))
		r.refused(greedy) // handed over
		time.Sleep(5 * time.Millisecond)
		r.must(r.locked(greedy).Unlock(ctx))
		r.must(other.Unlock(ctx))
		r.must(r.won(waiting).Unlock(ctx))
		link.Thaw()
		r.until("the end of all keys", func() bool { return r.keys() == 0 })
	})
}

// The place of an All in a queue counts from its first refusal on any key.
func TestAnAllKeepsItsPlaceWhenItWaitsForAnotherKey(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder, _ := r.process("holder")
		first, _ := r.process("first")
		second, _ := r.process("second")
		a, b := r.locked(holder.Mutex("a", lock.Options{})), r.locked(holder.Mutex("b", lock.Options{}))
		both := lockAsync(ctx, first.All([]string{"a", "b"}, lock.Options{}))
		r.until("the All to wait for a", func() bool { return r.rdb.ZCard(ctx, "{a}:waiters").Val() == 1 })
		time.Sleep(time.Millisecond)
		single := lockAsync(ctx, second.Mutex("b", lock.Options{}))
		r.until("the mutex to wait for b", func() bool { return r.rdb.ZCard(ctx, "{b}:waiters").Val() == 1 })
		time.Sleep(time.Millisecond)
		r.must(a.Unlock(ctx))
		r.until("the All to wait for b", func() bool { return r.rdb.ZCard(ctx, "{b}:waiters").Val() == 2 })
		r.must(b.Unlock(ctx))
		r.until("a lease", func() bool { return both.over() || single.over() })
		check.Require(r, !single.over(), "a process that came later got b first")
		r.must(r.won(both).Unlock(ctx))
		r.must(r.won(single).Unlock(ctx))
	})
}

// An All that finds its second key held releases the first one. The release is lost with
// its connection, and sent again.
func TestAnAllReleasesAKeyAgainIfTheReleaseIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		late(r.link, "{orders}:free", time.Hour) // the release
		c := r.client(lock.Config{})
		r.must(r.locked(lock.Scatter(c.All([]string{"cold", "warm"}, lock.Options{}))).Unlock(ctx)) // the server knows the scripts
		r.must(r.rdb.Set(ctx, "stock", "stranger", 0).Err())
		r.refused(lock.Scatter(c.All([]string{"orders", "stock"}, lock.Options{TTL: 2 * time.Hour})))
		time.Sleep(time.Second)
		check.Require(r, r.rdb.Exists(ctx, "orders").Val() != 0, "the release was not lost")
		time.Sleep(r.via.Options().ReadTimeout)
		r.holds("orders", "")
	})
}

// Issue 18: clients that name the same keys in opposite orders never deadlock, and never
// two hold a key.
func TestAllsInOppositeOrdersNeverDeadlock(t *testing.T) {
	for name, way := range ways {
		sub(t, name, onRedis, func(r *rig) {
			opposite(r, r.via, way)
		})
	}
}

// opposite has up to 50 clients, each with its own connections, lock 2 to 4 of 4 keys in random
// orders.
func opposite(r *rig, via redis.UniversalClient, way func(lock.Locker) lock.Locker) {
	period := time.Duration(testtier.Size(50, 2000, 60_000)) * time.Millisecond
	keys := []string{"a", "b", "c", "d"}
	var inside [4]atomic.Int32
	leases := make([]atomic.Int64, testtier.Size(20, 50, 50))
	var longest atomic.Int64
	began := time.Now()
	var clients sync.WaitGroup
	for i := range leases {
		c := r.open(via, lock.Config{Owner: fmt.Sprint(i)})
		defer c.Close()
		clients.Go(func() {
			for n := 0; n < 3 || time.Since(began) < period; n++ {
				order := rand.Perm(len(keys))[:2+rand.IntN(3)]
				var names []string
				for _, k := range order {
					names = append(names, keys[k])
				}
				limit, cancel := context.WithTimeout(ctx, time.Minute)
				asked := time.Now()
				lease, err := way(c.All(names, lock.Options{})).Lock(limit)
				cancel()
				if err != nil {
					r.Errorf("client %d: %v", i, err)
					return
				}
				if waited := int64(time.Since(asked)); waited > longest.Load() {
					longest.Store(waited)
				}
				for _, k := range order {
					check.True(r, inside[k].Add(1) == 1 || !lease.Valid(), "two clients hold %s", keys[k])
				}
				for _, k := range order {
					inside[k].Add(-1)
				}
				check.ErrorIs(r, lease.Unlock(ctx), nil, "client %d", i)
				leases[i].Add(1)
			}
		})
	}
	clients.Wait()
	total, fewest := int64(0), leases[0].Load()
	for i := range leases {
		total, fewest = total+leases[i].Load(), min(fewest, leases[i].Load())
	}
	r.Logf("%d clients had %d leases in %v, each at least %d; the longest wait was %v",
		len(leases), total, time.Since(began).Round(time.Millisecond), fewest, time.Duration(longest.Load()).Round(time.Millisecond))
	check.True(r, fewest != 0, "a client had no lease")
}

// onClusterKeys are keys in several slots, in one slot, and with a name that leaves no room
// for companions.
var onClusterKeys = map[string][]string{
	"several slots": {"a", "b", "c", "d"},
	"one slot":      {"{t}:a", "{t}:b", "{t}:c", "{t}:d"},
	"two slots":     {"{t}:a", "{t}:b", "{u}:c", "{u}:d"},
	"no companions": {"a}", "b}", "{t}:c", "d"},
}

// held returns how many keys exist.
func (r *clusterRig) held(keys []string) (n int64) {
	for _, key := range keys {
		n += r.rdb.Exists(ctx, key).Val()
	}
	return n
}

// Scenario 14 on a cluster: all keys are held, lost and released together, and waiters of
// one key and of all keys wake each other.
func TestAnAllOnACluster(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{})
	holder, waiting := r.client(lock.Config{}), r.client(lock.Config{})
	o := lock.Options{TTL: time.Minute, Renew: lock.Renew{Every: 50 * time.Millisecond}}
	for name, keys := range onClusterKeys {
		for _, key := range keys {
			for _, pair := range [][2]lock.Locker{
				{holder.All(keys, o), waiting.Mutex(key, o)},
				{holder.Mutex(key, o), waiting.All(keys, o)},
				{holder.All(keys, o), waiting.All(keys, o)},
			} {
				lease := r.locked(pair[0])
				r.refused(pair[1])
				refused := waiting.Stats().Events[lock.Contended]
				next := lockAsync(ctx, pair[1])
				r.until("a waiter that listens", func() bool { return len(r.channels()) > 0 && waiting.Stats().Events[lock.Contended] > refused })
				released := time.Now()
				r.must(lease.Extend(ctx, time.Minute))
				r.must(lease.Unlock(ctx))
				lease = r.won(next)
				delay := time.Since(released)
				check.False(t, tooLate(delay, time.Second), "%s, %s: the waiter got the lock after %v", name, key, delay)
				r.must(lease.Unlock(ctx))
				r.until("the release", func() bool { return r.held(keys) == 0 })
			}
		}
		lease := r.locked(holder.All(keys, o))
		check.Equal(t, r.held(keys), 4, "%s: held keys of 4", name)
		r.must(r.rdb.Del(ctx, keys[2]).Err())
		r.until("the end of the lease", func() bool { return !lease.Valid() })
		r.until("the release of the other keys", func() bool { return r.held(keys) == 0 })
	}
}

func TestAllsInOppositeOrdersOnAClusterNeverDeadlock(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{})
	opposite(r.rig, r.rdb, ways["one slot"])
}
