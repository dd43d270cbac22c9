//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
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
func (s *scene) leases(of func(*lock.Client) interface {
	Lock(context.Context) (*lock.Lease, error)
}) acquirer {
	clients := make(map[int]*lock.Client)
	for i := range handingOver {
		clients[i] = newLockClient(s.T, s.rdb, fmt.Sprint("worker-", i))
	}
	return func(ctx context.Context, i int) (func(context.Context) error, error) {
		lease, err := of(clients[i]).Lock(ctx)
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
			return freeIfMine.Run(ctx, rdb, []string{sceneKey}, token).Err()
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
if first then redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}:' .. first, 0) end`)
)

// redissons takes a lock of Redisson: waiters subscribe to its channel.
func (s *scene) redissons() acquirer {
	return func(ctx context.Context, i int) (func(context.Context) error, error) {
		try := func() bool {
			n, err := tryRedisson.Run(ctx, s.rdb, []string{sceneKey}, thread(i)).Int()
			return err == nil && n == 1
		}
		if !try() {
			sub := s.rdb.Subscribe(ctx, "redisson_lock__channel:{"+sceneKey+"}")
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
		return func(ctx context.Context) error {
			if err := unlock.Run(ctx, s.rdb, []string{sceneKey}).Err(); err != redis.Nil {
				return err
			}
			return nil
		}, nil
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

// holdsEnded is in the summary of a lock without an incident.
var holdsEnded = regexp.MustCompile(`: (\d+) holds? ended`)

// healthy fails if explain finds an incident. It returns how many holds it knows.
func (s *scene) healthy() (holds int) {
	s.Helper()
	var all render.StoryDocument
	out, err := exec.Command("locktop", "explain", s.key, s.file, "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || all.Found > 0 || len(all.Calm) != 1 {
		text, _ := exec.Command("locktop", "explain", s.key, s.file).CombinedOutput()
		s.Fatalf("%v, it says:\n%s", err, text)
	}
	if found := holdsEnded.FindStringSubmatch(all.Calm[0]); found != nil {
		holds, _ = strconv.Atoi(found[1])
	}
	return holds
}

// With LOCKTOP_PROOF: healthy clients of several libraries hand a lock over, 100 times each.
// Explain invents no incident.
func TestExplainInventsNothingInHealthyHandOvers(t *testing.T) {
	testtier.Proof(t, "it hands real locks over 1,300 times")
	const n = 100
	type locker = interface {
		Lock(context.Context) (*lock.Lease, error)
	}
	var told atomic.Int64
	room := make(chan struct{}, 4)
	t.Cleanup(func() { t.Logf("%d holds were recorded, and no incident", told.Load()) })
	for name, play := range map[string]func(t *testing.T) *scene{
		"SET NX, pollers of 50 ms": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.setNX(s.rdb, 50*time.Millisecond))
			return s
		},
		"SET NX, pollers of 1 s": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.setNX(s.rdb, time.Second))
			return s
		},
		"mutex": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.leases(func(c *lock.Client) locker { return c.Mutex(sceneKey, lock.Options{}) }))
			return s
		},
		"mutex, renewed during each hold": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 600*time.Millisecond, s.leases(func(c *lock.Client) locker {
				return c.Mutex(sceneKey, lock.Options{Renew: lock.Renew{Every: 200 * time.Millisecond}})
			}))
			return s
		},
		"mutex, holds of 100 ms to 2 s": func(t *testing.T) *scene {
			s := newScene(t)
			take := s.leases(func(c *lock.Client) locker { return c.Mutex(sceneKey, lock.Options{}) })
			s.handOver(n, 200*time.Millisecond, func(ctx context.Context, i int) (func(context.Context) error, error) {
				release, err := take(ctx, i)
				if err == nil && rand.IntN(20) == 0 {
					<-time.After(2 * time.Second)
				}
				return release, err
			})
			return s
		},
		"fair": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.leases(func(c *lock.Client) locker { return c.Fair(sceneKey, lock.Options{}) }))
			return s
		},
		"writers": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.leases(func(c *lock.Client) locker { return c.RW(sceneKey, lock.Options{}).Writer() }))
			return s
		},
		"readers": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.leases(func(c *lock.Client) locker { return c.RW(sceneKey, lock.Options{}).Reader() }))
			return s
		},
		"permits": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.leases(func(c *lock.Client) locker { return c.Semaphore(sceneKey, 2, lock.Options{}) }))
			return s
		},
		"Redisson": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, s.redissons())
			return s
		},
		"Redisson, fair, pollers of 500 ms": func(t *testing.T) *scene {
			s := newScene(t)
			s.handOver(n, 200*time.Millisecond, func(ctx context.Context, i int) (func(context.Context) error, error) {
				o := fairOwner{s.rdb, thread(i)}
				err := polls(ctx, 500*time.Millisecond, func() bool { return o.try(ctx, sceneKey) })
				return func(ctx context.Context) error {
					if err := freeRedissonFair.Run(ctx, s.rdb, []string{sceneKey, "redisson_lock_queue:{" + sceneKey + "}"}).Err(); err != redis.Nil {
						return err
					}
					return nil
				}, err
			})
			return s
		},
		"a connection that ends during each hold": func(t *testing.T) *scene {
			s := newScene(t)
			take := s.setNX(s.rdb, 50*time.Millisecond)
			s.handOver(n, 200*time.Millisecond, func(ctx context.Context, i int) (func(context.Context) error, error) {
				holder := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, ClientName: fmt.Sprint("worker-", i)})
				defer holder.Close()
				if err := holder.Ping(ctx).Err(); err != nil {
					return nil, err
				}
				return take(ctx, i)
			})
			return s
		},
		"in a slot that is moved": func(t *testing.T) *scene {
			s, c := inCluster(t, server.ClusterOptions{})
			rdb := clusterClient(t, c)
			slot := int(s.rdb.ClusterKeySlot(t.Context(), sceneKey).Val())
			ctx, stop := context.WithCancel(t.Context())
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				for i := 0; ctx.Err() == nil; i++ {
					to := c.Nodes()[i%3]
					if owner, err := c.Owner(t.Context(), slot); err == nil && owner != to {
						m, err := c.StartMigration(t.Context(), slot, to)
						if err == nil {
							err = m.Finish(t.Context())
							_ = m.Close()
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
					someTime(time.Second)
				}
			}()
			s.handOver(n, 200*time.Millisecond, s.setNX(rdb, 50*time.Millisecond))
			stop()
			<-moved
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			s := play(t)
			s.recordedEnd()
			holds := s.healthy()
			told.Add(int64(holds))
			if t.Logf("%d of %d holds", holds, n); holds < n*9/10 {
				t.Errorf("only %d of %d holds are recorded", holds, n)
			}
		})
	}
}

// recordedEnd waits until the recording has a frame that is later than now.
func (s *scene) recordedEnd() {
	s.Helper()
	now := time.Now()
	recordedUntil(s.T, s.file, "a later frame", func(snap keyspace.Snapshot) bool { return snap.At.After(now) })
}
