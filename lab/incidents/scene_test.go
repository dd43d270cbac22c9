//go:build unix

// Package incidents plays incidents on real servers, and proves that explain names their causes.
package incidents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/lab/internal/labtest"
	"locktop/lock"
)

func TestMain(m *testing.M) { labtest.Main(m, 16) }

// scene is a lock on a server that locktop record watches.
type scene struct {
	*testing.T
	server  *server.Child
	cluster *servertest.Cluster // nil: it is not on a cluster
	rdb     server.Client
	file    string
	key     string // that is explained
}

const sceneKey = "lock:nightly"

// newScene starts a server, with arguments of its own, and its recorder.
func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	child := servertest.RedisForTest(t, args...)
	s := record(t, child.Addr(), "-u", "redis://"+child.Addr())
	s.server = child
	return s
}

// record starts a recorder with flags. The clients of the scene use the server at addr.
func record(t *testing.T, addr string, flags ...string) *scene {
	t.Helper()
	s := &scene{T: t, rdb: labtest.Client(t, addr, server.ClientOptions{}), file: filepath.Join(t.TempDir(), "night.lockrec"), key: sceneKey}
	labtest.Start(t, append([]string{"record", s.file}, flags...)...)
	labtest.RecordedUntil(t, s.file, "a frame", func(snap keyspace.Snapshot) bool { return snap.Complete })
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
	holder := labtest.Client(s.T, servertest.AddrOf(s.rdb), server.ClientOptions{Name: connection, PoolSize: 1})
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
		var argv []any
		for _, word := range strings.Fields(c) {
			argv = append(argv, word)
		}
		err := s.rdb.Do(s.Context(), argv...).Err()
		check.Require(s, err == nil || err == redis.Nil, "%q: %v", c, err)
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
	return s.waitFor(check.Must(labtest.LockClient(s.T, s.rdb, name).Mutex(sceneKey, lock.Options{}))(s.T), hold)
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
	labtest.RecordedUntil(s.T, s.file, what, func(snap keyspace.Snapshot) bool { return hasLock(snap, ok) })
}

// hasLock reports whether the lock is in a snapshot and meets a condition.
func hasLock(snap keyspace.Snapshot, ok func(*keyspace.Lock) bool) bool {
	return slices.ContainsFunc(snap.Locks, func(l *keyspace.Lock) bool { return l.Key == sceneKey && ok(l) })
}

// recordedUntil waits until the lock of the recording has met a condition for a time.
func (s *scene) recordedUntil(long time.Duration, ok func(*keyspace.Lock) bool) {
	s.Helper()
	var since time.Time
	labtest.RecordedUntil(s.T, s.file, "the same for a while", func(snap keyspace.Snapshot) bool {
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
func (s *scene) explain(flags ...string) labtest.Outcome {
	s.Helper()
	return labtest.Locktop(s.T, append([]string{"explain", s.key, s.file}, flags...)...)
}

// explained waits until explain names a cause, and returns the story.
func (s *scene) explained(cause incident.Cause) (d render.Story) {
	s.Helper()
	var out string
	for deadline := time.Now().Add(labtest.LongestWait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var all render.StoryDocument
		out = s.explain("--json").Out
		if json.Unmarshal([]byte(out), &all) == nil && len(all.Stories) > 0 && all.Stories[0].Cause == cause && (!all.Stories[0].Ongoing || cause == incident.NeverExpires) {
			s.Log(s.explain().Out)
			check.True(s, all.StoryCount <= 1, "the other incidents are invented")
			return all.Stories[0]
		}
	}
	s.Fatalf("explain never says %s, but:\n%s", cause, out)
	return d
}
