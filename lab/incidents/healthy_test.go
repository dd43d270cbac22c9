//go:build unix

package incidents

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/lab/internal/labtest"
	"locktop/lock"
)

// acquirer acquires a lock for one of several clients, and returns its release.
type acquirer func(ctx context.Context, client int) (release func(context.Context) error, err error)

// someTime waits for a random time from half of d to one and a half.
func someTime(d time.Duration) { <-time.After(time.Duration((0.5 + rand.Float64()) * float64(d))) }

// polls calls try until it succeeds, or ctx ends.
func polls(ctx context.Context, every time.Duration, try func() bool) error {
	for !try() {
		if someTime(every); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// leases takes locks of package lock, with one client for each number.
func (s *scene) leases(of func(*lock.Client) (lock.Locker, error)) acquirer {
	locks := make(map[int]lock.Locker)
	for i := range handingOver {
		locks[i] = check.Must(of(labtest.LockClient(s.T, s.rdb, fmt.Sprint("worker-", i))))(s.T)
	}
	return func(ctx context.Context, i int) (func(context.Context) error, error) {
		lease, err := locks[i].Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
}

// setNX takes a lock as most scripts do: they look once in a while, and compare their token.
func (s *scene) setNX(rdb redis.Cmdable, every time.Duration) acquirer {
	return func(ctx context.Context, i int) (func(context.Context) error, error) {
		token := tokenOf(fmt.Sprint("worker-", i))
		err := polls(ctx, every, func() bool { return rdb.SetNX(ctx, sceneKey, token, 30*time.Second).Val() })
		return func(ctx context.Context) error {
			return labtest.FreeIfMine.Run(ctx, rdb, []string{sceneKey}, token).Err()
		}, err
	}
}

var (
	tryRedisson = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 30000)
return 1`)
	freeRedissonFair = redis.NewScript(`
redis.call('DEL', KEYS[1])
local first = redis.call('LINDEX', KEYS[2], 0)
if first then redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}:' .. first, 0) end
return 1`)
)

// redissons takes a lock of Redisson: waiters subscribe to its channel.
func (s *scene) redissons() acquirer {
	return func(ctx context.Context, i int) (func(context.Context) error, error) {
		try := func() bool {
			n, err := tryRedisson.Run(ctx, s.rdb, []string{sceneKey}, thread(i)).Int()
			return err == nil && n == 1
		}
		if !try() {
			sub := servertest.Subscribe(ctx, s.rdb, "redisson_lock__channel:{"+sceneKey+"}")
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				return nil, err
			}
			for !try() {
				if _, err := sub.ReceiveTimeout(ctx, time.Second); err != nil && ctx.Err() != nil {
					return nil, err
				}
			}
		}
		return func(ctx context.Context) error { return unlock.Run(ctx, s.rdb, []string{sceneKey}).Err() }, nil
	}
}

// handingOver is the number of clients that hand a lock over, one to the next.
const handingOver = 4

// handOver lets clients take turns until there were so many holds.
func (s *scene) handOver(n int, hold time.Duration, take acquirer) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 8*time.Minute)
	defer cancel()
	var taken atomic.Int64
	var clients sync.WaitGroup
	for i := range handingOver {
		clients.Go(func() {
			for taken.Add(1) <= int64(n) {
				release, err := take(ctx, i)
				if err != nil {
					s.Error(err)
					return
				}
				someTime(hold)
				if err := release(ctx); err != nil {
					s.Error(err)
					return
				}
				someTime(8 * hold) // so the lock is not contended
			}
		})
	}
	clients.Wait()
}

// healthy fails if explain finds an incident. It returns how many holds it knows.
func (s *scene) healthy() (holds int) {
	s.Helper()
	all := labtest.Decoded[render.StoryDocument](s.T, s.explain("--json").Out)
	if all.StoryCount > 0 || len(all.Summaries) != 1 {
		s.Fatalf("it says:\n%+v", s.explain())
	}
	if found := regexp.MustCompile(`: (\d+) holds? ended`).FindStringSubmatch(all.Summaries[0]); found != nil {
		holds, _ = strconv.Atoi(found[1])
	}
	return holds
}

// With LOCKTOP_PROOF: healthy clients of several libraries hand a lock over, 100 times each.
// Explain invents no incident.
func TestExplainInventsNothingInHealthyHandOvers(t *testing.T) {
	testtier.Proof(t, "it hands real locks over 1,300 times")
	const n = 100
	var told atomic.Int64
	room := make(chan struct{}, 4)
	t.Cleanup(func() { t.Logf("%d holds were recorded, and no incident", told.Load()) })
	leased := func(of func(*lock.Client) (lock.Locker, error)) func(*scene) acquirer {
		return func(s *scene) acquirer { return s.leases(of) }
	}
	longer := func(of func(*scene) acquirer, work func()) func(*scene) acquirer {
		return func(s *scene) acquirer {
			take := of(s)
			return func(ctx context.Context, i int) (func(context.Context) error, error) {
				release, err := take(ctx, i)
				work()
				return release, err
			}
		}
	}
	judge := func(name string, on func(*testing.T) *scene, take func(*scene) acquirer) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			s := on(t)
			s.handOver(n, 200*time.Millisecond, take(s))
			now := time.Now()
			labtest.RecordedUntil(s.T, s.file, "a later frame", func(snap keyspace.Snapshot) bool { return snap.At.After(now) })
			holds := s.healthy()
			told.Add(int64(holds))
			t.Logf("%d of %d holds", holds, n)
			check.True(t, holds >= n*9/10, "only %d of %d holds are recorded", holds, n)
		})
	}
	for name, take := range map[string]func(*scene) acquirer{
		"SET NX, pollers of 50 ms": func(s *scene) acquirer { return s.setNX(s.rdb, 50*time.Millisecond) },
		"SET NX, pollers of 1 s":   func(s *scene) acquirer { return s.setNX(s.rdb, time.Second) },
		"mutex":                    leased(func(c *lock.Client) (lock.Locker, error) { return c.Mutex(sceneKey, lock.Options{}) }),
		"mutex, renewed during each hold": longer(leased(func(c *lock.Client) (lock.Locker, error) {
			return c.Mutex(sceneKey, lock.Options{Renew: lock.Renew{Every: 200 * time.Millisecond}})
		}), func() { someTime(400 * time.Millisecond) }),
		"mutex, holds of 100 ms to 2 s": longer(leased(func(c *lock.Client) (lock.Locker, error) { return c.Mutex(sceneKey, lock.Options{}) }), func() {
			if rand.IntN(20) == 0 {
				<-time.After(2 * time.Second)
			}
		}),
		"fair": leased(func(c *lock.Client) (lock.Locker, error) { return c.Fair(sceneKey, lock.Options{}) }),
		"writers": leased(func(c *lock.Client) (lock.Locker, error) {
			_, writer, err := c.RW(sceneKey, lock.Options{})
			return writer, err
		}),
		"readers": leased(func(c *lock.Client) (lock.Locker, error) {
			reader, _, err := c.RW(sceneKey, lock.Options{})
			return reader, err
		}),
		"permits":  leased(func(c *lock.Client) (lock.Locker, error) { return c.Semaphore(sceneKey, 2, lock.Options{}) }),
		"Redisson": (*scene).redissons,
		"Redisson, fair, pollers of 500 ms": func(s *scene) acquirer {
			return func(ctx context.Context, i int) (func(context.Context) error, error) {
				o := fairOwner{s.rdb, thread(i)}
				err := polls(ctx, 500*time.Millisecond, func() bool { return o.try(ctx, sceneKey) })
				return func(ctx context.Context) error {
					return freeRedissonFair.Run(ctx, s.rdb, []string{sceneKey, "redisson_lock_queue:{" + sceneKey + "}"}).Err()
				}, err
			}
		},
		"a connection that ends during each hold": func(s *scene) acquirer {
			take := s.setNX(s.rdb, 50*time.Millisecond)
			return func(ctx context.Context, i int) (func(context.Context) error, error) {
				holder := server.NewClient(servertest.AddrOf(s.rdb), server.ClientOptions{Name: fmt.Sprint("worker-", i)})
				defer holder.Close()
				if err := holder.Ping(ctx).Err(); err != nil {
					return nil, err
				}
				return take(ctx, i)
			}
		},
	} {
		judge(name, func(t *testing.T) *scene { return newScene(t) }, take)
	}
	judge("in a slot that is moved", movingScene, func(s *scene) acquirer {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.cluster.Addrs()})
		s.Cleanup(func() { _ = rdb.Close() })
		return s.setNX(rdb, 50*time.Millisecond)
	})
}

// movingScene returns a scene on a cluster whose masters hand the slot of the lock on until the end of the test.
func movingScene(t *testing.T) *scene {
	s := inCluster(t, servertest.ClusterOptions{})
	slot := int(s.rdb.ClusterKeySlot(t.Context(), sceneKey).Val())
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for i := 0; t.Context().Err() == nil; i++ {
			to := s.cluster.Nodes()[i%3]
			if owner, err := s.cluster.Owner(t.Context(), slot); err == nil && owner != to {
				if err := s.cluster.MoveSlot(t.Context(), slot, to); err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
			}
			someTime(time.Second)
		}
	}()
	t.Cleanup(func() { <-moved })
	return s
}
