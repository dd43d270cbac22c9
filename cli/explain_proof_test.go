//go:build unix

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/lock"
)

// scene is a lock on a server that locktop record watches.
type scene struct {
	*testing.T
	server  *server.Child
	cluster *server.Cluster // nil: it is not on a cluster
	rdb     server.Client
	file    string
	key     string // that is explained
}

const sceneKey = "lock:nightly"

// newScene starts a server, with arguments of its own, and its recorder.
func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	child := server.ForTest(t, args...)
	s := record(t, child.Addr(), "-u", "redis://"+child.Addr())
	s.server = child
	return s
}

// record starts a recorder with flags. The clients of the scene use the server at addr.
func record(t *testing.T, addr string, flags ...string) *scene {
	t.Helper()
	s := &scene{T: t, rdb: clientTo(t, addr), file: filepath.Join(t.TempDir(), "night.lockrec"), key: sceneKey}
	spawn(t, append([]string{"record", s.file}, flags...)...)
	recordedUntil(t, s.file, "a frame", func(snap keyspace.Snapshot) bool { return snap.Complete })
	return s
}

// hold lets worker-7 acquire the lock, with a connection of its own that has its name.
func (s *scene) hold(ttl time.Duration) server.Client {
	s.Helper()
	return s.holdAs("worker-7", ttl)
}

// holdAs lets worker-7 acquire the lock, with a connection that has another name.
func (s *scene) holdAs(connection string, ttl time.Duration) server.Client {
	s.Helper()
	holder := clientWith(s.T, server.AddrOf(s.rdb), server.ClientOptions{Name: connection, PoolSize: 1})
	ok, err := holder.SetNX(s.Context(), sceneKey, tokenOf("worker-7"), ttl).Result()
	check.Require(s, ok && err == nil, "the lock is not free %v", err)
	return holder
}

// tokenOf returns a new token of a client of package lock.
func tokenOf(client string) string { return client + "~" + uuid.Must(uuid.NewV7()).String() }

// renew lets a holder renew the lock n times, every 500 ms.
func (s *scene) renew(holder server.Client, n int, ttl time.Duration) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range n {
		<-tick.C
		holder.PExpire(s.Context(), sceneKey, ttl)
	}
}

// do runs commands one after the other.
func (s *scene) do(commands ...string) {
	s.Helper()
	for _, c := range commands {
		issue(s.T, s.rdb, strings.Fields(c))
	}
}

// fair stores a fair lock of Redisson with a holder and a waiter, who are numbered threads.
func (s *scene) fair(key string, holder, waiter int) {
	s.Helper()
	s.do("HSET "+key+" "+thread(holder)+" 1", "PEXPIRE "+key+" 60000", "RPUSH redisson_lock_queue:{"+key+"} "+thread(waiter),
		fmt.Sprintf("ZADD redisson_lock_timeout:{%s} %d %s", key, time.Now().Add(5*time.Minute).UnixMilli(), thread(waiter)))
}

// wait lets a client of package lock wait for the lock. It then holds it for a moment; after that, ended is closed.
func (s *scene) wait(name string, hold time.Duration) (ended <-chan struct{}) {
	return s.waitFor(newLockClient(s.T, s.rdb, name).Mutex(sceneKey, lock.Options{}), hold)
}

// waitFor is wait for any lock.
func (s *scene) waitFor(l lock.Locker, hold time.Duration) (ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lease, err := l.Lock(ctx)
		if err == nil {
			select {
			case <-time.After(hold):
			case <-ctx.Done():
			}
			_ = lease.Unlock(ctx) // it may be lost
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
	return done
}

// takeTurns lets n clients hold the lock, one after the other.
func (s *scene) takeTurns(n int) {
	var all []<-chan struct{}
	for range n {
		all = append(all, s.wait("worker-2", 100*time.Millisecond))
	}
	for _, ended := range all {
		<-ended
	}
}

// waitBehind lets a client hold the lock for a minute while another one waits. The release
// before it was announced, because a client waited.
func (s *scene) waitBehind(name string) {
	s.Helper()
	first, second := s.wait("worker-2", 300*time.Millisecond), s.wait("worker-2", 0)
	<-first
	<-second
	s.wait(name, time.Minute)
	s.recorded("its hold", func(l *keyspace.Lock) bool { return hasHolder(l) && l.Holders[0].Label == name })
	s.wait("worker-2", 0)
	s.recorded("a waiter", isWaitedFor)
}

// recorded waits until a lock of the recording meets a condition.
func (s *scene) recorded(what string, ok func(*keyspace.Lock) bool) {
	s.Helper()
	recordedUntil(s.T, s.file, what, func(snap keyspace.Snapshot) bool { return hasLock(snap, ok) })
}

// hasLock reports whether the lock is in a snapshot and meets a condition.
func hasLock(snap keyspace.Snapshot, ok func(*keyspace.Lock) bool) bool {
	return slices.ContainsFunc(snap.Locks, func(l *keyspace.Lock) bool { return l.Key == sceneKey && ok(l) })
}

// recordedUntil waits until the lock of the recording has met a condition for a time.
func (s *scene) recordedUntil(long time.Duration, ok func(*keyspace.Lock) bool) {
	s.Helper()
	var since time.Time
	recordedUntil(s.T, s.file, "the same for a while", func(snap keyspace.Snapshot) bool {
		if !hasLock(snap, ok) {
			since = time.Time{}
			return false
		}
		since = cmp.Or(since, snap.At)
		return snap.At.Sub(since) >= long
	})
}

func isConnected(l *keyspace.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Addr != "" }
func hasHolder(l *keyspace.Lock) bool   { return len(l.Holders) == 1 }
func isWaitedFor(l *keyspace.Lock) bool { return l.WaiterCount() > 0 }

// explain runs explain on the recording.
func (s *scene) explain(flags ...string) outcome {
	s.Helper()
	return locktop(s.T, append([]string{"explain", s.key, s.file}, flags...)...)
}

// explained waits until explain names a cause, and returns the story.
func (s *scene) explained(cause incident.Cause) (d render.Story) {
	s.Helper()
	var out string
	for deadline := time.Now().Add(longestWait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var all render.StoryDocument
		out = s.explain("--json").out
		if json.Unmarshal([]byte(out), &all) == nil && len(all.Stories) > 0 && all.Stories[0].Cause == cause && (!all.Stories[0].Ongoing || cause == incident.NeverExpires) {
			s.Log(s.explain().out)
			check.True(s, all.Found <= 1, "the other incidents are invented")
			return all.Stories[0]
		}
	}
	s.Fatalf("explain never says %s, but:\n%s", cause, out)
	return d
}

// staged is an incident on real servers.
type staged struct {
	cause incident.Cause
	how   string                    // in which it differs from the others of its cause
	says  string                    // part of the story
	on    func(t *testing.T) *scene // nil: one server
	play  func(s *scene)
}

// commonest are incidents as most operators have them, one for each cause of one server.
func commonest() []staged {
	return []staged{
		{incident.HolderGone, "with a waiter", "The connection of worker-7, which held lock:nightly, ended", nil, func(s *scene) {
			holder := s.hold(20 * time.Second) // a busy recorder sees its connection and the end of it
			s.wait("worker-2", 0)
			s.recorded("its connection", isConnected)
			_ = holder.Close()
			story := s.explained(incident.HolderGone)
			check.True(s, story.BlockedMS != 0 && story.Clients == 1, "it says %+v", story)
		}},
		{incident.HolderFrozen, "that renewed", "worker-7 held lock:nightly and froze", nil, func(s *scene) {
			holder := s.hold(8 * time.Second)
			s.wait("worker-2", 0)
			s.renew(holder, 10, 8*time.Second) // then it does nothing, and stays connected
			s.recorded("its connection", func(l *keyspace.Lock) bool { return isConnected(l) && l.Renewals > 5 })
			story := s.explained(incident.HolderFrozen)
			check.True(s, story.AtMost && story.BlockedMS >= 6000 && story.BlockedMS <= 9000, "it says %+v", story)
		}},
		{incident.Evicted, "", "evicted (maxmemory-policy volatile-ttl)", func(t *testing.T) *scene {
			return newScene(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb")
		}, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			s.do("CONFIG SET maxmemory 1mb")
			s.rdb.Set(s.Context(), "ordinary", strings.Repeat("x", 2000), 0) // it evicts what expires soonest
		}},
		{incident.Deleted, "", "A client deleted", nil, func(s *scene) {
			s.waitBehind("worker-3")
			s.do("DEL " + sceneKey)
		}},
		{incident.Expired, "killed, without a name", "no connection had the name worker-7. With CLIENT SETNAME worker-7", nil, func(s *scene) { // killed, but without a name
			holder := s.holdAs("", 3*time.Second)
			s.recorded("the lock", hasHolder)
			_ = holder.Close()
		}},
		{incident.RenewalsStopped, "without a name", "no connection had the name worker-7", nil, func(s *scene) {
			s.renew(s.holdAs("", 2*time.Second), 6, 2*time.Second)
		}},
		{incident.NeverExpires, "", "The connection of worker-7, which held lock:nightly, ended", nil, func(s *scene) {
			holder := s.hold(0)
			s.recorded("its connection", isConnected)
			_ = holder.Close()
		}},
		{incident.TTLTooShort, "", "is too short", nil, func(s *scene) {
			s.hold(3 * time.Second) // it works for longer
			s.wait("worker-2", 2*time.Second)
		}},
		{incident.Overdue, "", "worker-2 held lock:nightly for", nil, func(s *scene) {
			s.takeTurns(7)
			s.wait("worker-2", 7*time.Second)
			s.recorded("a hold", hasHolder)
			s.wait("worker-2", 0)
		}},
		{incident.SlowHandOff, "a message that is lost", "Nobody held lock:nightly from", nil, func(s *scene) { // the waiter has missed the message
			s.fair(sceneKey, 1, 2)
			s.recorded("a waiter", isWaitedFor)
			s.do("DEL "+sceneKey, "PUBLISH redisson_lock__channel:{"+sceneKey+"} 0")
			free := func(l *keyspace.Lock) bool { return len(l.Holders) == 0 }
			s.recorded("a free lock", free)
			s.recordedUntil(3*time.Second, free)
			s.do("DEL redisson_lock_queue:{"+sceneKey+"} redisson_lock_timeout:{"+sceneKey+"}", "HSET "+sceneKey+" 205b3d04-2e62-4ac4-93f7-8a1d1c8bb0f4:1 1", "PEXPIRE "+sceneKey+" 60000")
			s.recorded("the next holder", hasHolder)
			s.do("DEL "+sceneKey, "PUBLISH redisson_lock__channel:{"+sceneKey+"} 0")
		}},
		{incident.Deadlock, "of two", "was in a deadlock of 2 owners", nil, func(s *scene) {
			s.fair(sceneKey, 1, 2)
			s.fair("lock:other", 2, 1)
			s.recordedUntil(4*time.Second, isWaitedFor)
			s.do("DEL lock:other redisson_lock_queue:{lock:other} redisson_lock_timeout:{lock:other}", "DEL redisson_lock_queue:{"+sceneKey+"} redisson_lock_timeout:{"+sceneKey+"}")
		}},
		{incident.Flushed, "", "The database was emptied", nil, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			s.do("FLUSHDB")
		}},
		{incident.Restart, "", "A restart of the server lost lock:nightly", nil, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			check.NoError(s.T, errors.Join(s.server.Kill(), s.server.Restart(s.Context())))
		}},
		{incident.Stolen, "", "from worker-3, which had not released it", nil, func(s *scene) {
			s.waitBehind("worker-3")
			s.do("SET " + sceneKey + " " + tokenOf("thief") + " PX 60000")
		}},
	}
}

// tellEach plays incidents, and fails for each whose cause is not named.
func tellEach(t *testing.T, all []staged) {
	var named atomic.Int64
	room := make(chan struct{}, 4) // a recorder without a share of the processor is late, and a late one cannot tell much
	t.Cleanup(func() { t.Logf("the cause of %d of %d incidents is named", named.Load(), len(all)) })
	for _, one := range all {
		t.Run(strings.TrimSpace(string(one.cause)+" "+one.how), func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			on := one.on
			if on == nil {
				on = func(t *testing.T) *scene { return newScene(t) }
			}
			s := on(t)
			one.play(s)
			if text := fmt.Sprint(s.explained(one.cause)); !strings.Contains(text, one.says) {
				t.Errorf("no %q in %s", one.says, text)
			} else {
				named.Add(1)
			}
		})
	}
}

func TestEveryCauseIsStagedOnRealServers(t *testing.T) {
	all := append(commonest(), variants()...)
	for _, p := range keyspace.Causes() {
		c := incident.Cause(p.ID)
		check.True(t, c == incident.Lost || c == incident.PossibleDeadlock || slices.ContainsFunc(all, func(one staged) bool { return one.cause == c }), "%s is not staged", c)
	}
	check.True(t, len(all) >= 30, "%d incidents are staged", len(all))
}

// Real clients have the commonest incidents on a real server; the recorder of the program
// records them, and explain names their causes and costs.
func TestExplainNamesWhatRealClientsDid(t *testing.T) {
	testtier.Long(t, "locks expire in real time")
	t.Parallel()
	tellEach(t, commonest())
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		s.takeTurns(5)
		var got outcome
		within(t, longestWait, func() bool { // until the holds are recorded
			got = s.explain()
			return strings.Contains(got.out, "holds ended")
		})
		check.True(t, got.code == exitFine && strings.HasPrefix(got.out, "No incident from "), "it says %+v", got)
	})
}

// With LOCKTOP_PROOF: further incidents of the same causes, of other libraries, with other timings,
// and in other topologies, are named, too.
func TestExplainNamesTheCauseOfEveryVariant(t *testing.T) {
	testtier.Proof(t, "it plays 30 incidents on real servers")
	tellEach(t, variants())
}

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
func (s *scene) leases(of func(*lock.Client) lock.Locker) acquirer {
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
		return func(ctx context.Context) error { return freeIfMine.Run(ctx, rdb, []string{sceneKey}, token).Err() }, err
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
			sub := server.Subscribe(ctx, s.rdb, "redisson_lock__channel:{"+sceneKey+"}")
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
	all := decoded[render.StoryDocument](s.T, s.explain("--json").out)
	if all.Found > 0 || len(all.Calm) != 1 {
		s.Fatalf("it says:\n%+v", s.explain())
	}
	if found := regexp.MustCompile(`: (\d+) holds? ended`).FindStringSubmatch(all.Calm[0]); found != nil {
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
	leased := func(of func(*lock.Client) lock.Locker) func(*scene) acquirer {
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
			recordedUntil(s.T, s.file, "a later frame", func(snap keyspace.Snapshot) bool { return snap.At.After(now) })
			holds := s.healthy()
			told.Add(int64(holds))
			t.Logf("%d of %d holds", holds, n)
			check.True(t, holds >= n*9/10, "only %d of %d holds are recorded", holds, n)
		})
	}
	for name, take := range map[string]func(*scene) acquirer{
		"SET NX, pollers of 50 ms": func(s *scene) acquirer { return s.setNX(s.rdb, 50*time.Millisecond) },
		"SET NX, pollers of 1 s":   func(s *scene) acquirer { return s.setNX(s.rdb, time.Second) },
		"mutex":                    leased(func(c *lock.Client) lock.Locker { return c.Mutex(sceneKey, lock.Options{}) }),
		"mutex, renewed during each hold": longer(leased(func(c *lock.Client) lock.Locker {
			return c.Mutex(sceneKey, lock.Options{Renew: lock.Renew{Every: 200 * time.Millisecond}})
		}), func() { someTime(400 * time.Millisecond) }),
		"mutex, holds of 100 ms to 2 s": longer(leased(func(c *lock.Client) lock.Locker { return c.Mutex(sceneKey, lock.Options{}) }), func() {
			if rand.IntN(20) == 0 {
				<-time.After(2 * time.Second)
			}
		}),
		"fair":     leased(func(c *lock.Client) lock.Locker { return c.Fair(sceneKey, lock.Options{}) }),
		"writers":  leased(func(c *lock.Client) lock.Locker { return c.RW(sceneKey, lock.Options{}).Writer() }),
		"readers":  leased(func(c *lock.Client) lock.Locker { return c.RW(sceneKey, lock.Options{}).Reader() }),
		"permits":  leased(func(c *lock.Client) lock.Locker { return c.Semaphore(sceneKey, 2, lock.Options{}) }),
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
				holder := server.NewClient(server.AddrOf(s.rdb), server.ClientOptions{Name: fmt.Sprint("worker-", i)})
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
		return s.setNX(clusterClient(s.T, s.cluster), 50*time.Millisecond)
	})
}

// movingScene returns a scene on a cluster whose masters hand the slot of the lock on until the end of the test.
func movingScene(t *testing.T) *scene {
	s := inCluster(t, server.ClusterOptions{})
	slot := int(s.rdb.ClusterKeySlot(t.Context(), sceneKey).Val())
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for i := 0; t.Context().Err() == nil; i++ {
			to := s.cluster.Nodes()[i%3]
			if owner, err := s.cluster.Owner(t.Context(), slot); err == nil && owner != to {
				if err := moveSlot(t.Context(), s.cluster, slot, to); err != nil && t.Context().Err() == nil {
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
