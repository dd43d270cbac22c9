//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/lock"
)

// scene is a lock on a server that locktop record watches.
type scene struct {
	*testing.T
	server *server.Child
	rdb    *redis.Client
	file   string
}

const sceneKey = "lock:nightly"

func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	child := server.ForTest(t, args...)
	s := &scene{T: t, server: child, rdb: redis.NewClient(&redis.Options{Addr: child.Addr()}), file: filepath.Join(t.TempDir(), "night.lockrec")}
	cmd := exec.Command("locktop", "record", "-u", "redis://"+s.rdb.Options().Addr, s.file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		_ = s.rdb.Close()
	})
	recordedUntil(t, s.file, "a frame", func(snap keyspace.Snapshot) bool { return snap.Complete })
	return s
}

// hold lets worker-7 acquire the lock, with a connection of its own that has its name.
func (s *scene) hold(ttl time.Duration) *redis.Client {
	s.Helper()
	return s.holdAs("worker-7", ttl)
}

// holdAs lets worker-7 acquire the lock, with a connection that has another name.
func (s *scene) holdAs(connection string, ttl time.Duration) *redis.Client {
	s.Helper()
	holder := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, ClientName: connection, PoolSize: 1})
	s.Cleanup(func() { _ = holder.Close() })
	if ok, err := holder.SetNX(s.Context(), sceneKey, tokenOf("worker-7"), ttl).Result(); !ok || err != nil {
		s.Fatal("the lock is not free", err)
	}
	return holder
}

// tokenOf returns a new token of a client of package lock.
func tokenOf(client string) string { return client + "~" + uuid.Must(uuid.NewV7()).String() }

// renew lets a holder renew the lock n times, every 500 ms.
func (s *scene) renew(holder *redis.Client, n int, ttl time.Duration) {
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
		var args []any
		for _, word := range strings.Fields(c) {
			args = append(args, word)
		}
		if err := s.rdb.Do(s.Context(), args...).Err(); err != nil {
			s.Fatal(c, err)
		}
	}
}

// fair stores a fair lock of Redisson with a holder and a waiter, who are numbered threads.
func (s *scene) fair(key string, holder, waiter int) {
	s.Helper()
	who := func(n int) string { return fmt.Sprintf("%d05b3d04-2e62-4ac4-93f7-8a1d1c8bb0f4:1", n) }
	s.do("HSET "+key+" "+who(holder)+" 1", "PEXPIRE "+key+" 60000", "RPUSH redisson_lock_queue:{"+key+"} "+who(waiter),
		fmt.Sprintf("ZADD redisson_lock_timeout:{%s} %d %s", key, time.Now().Add(5*time.Minute).UnixMilli(), who(waiter)))
}

// wait lets a client of package lock wait for the lock. It then holds it for a moment; after
// that, ended is closed.
func (s *scene) wait(name string, hold time.Duration) (ended <-chan struct{}) {
	client := newLockClient(s.T, s.rdb, name)
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lease, err := client.Mutex(sceneKey, lock.Options{}).Lock(ctx)
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
	recordedUntil(s.T, s.file, what, func(snap keyspace.Snapshot) bool {
		for _, l := range snap.Locks {
			if l.Key == sceneKey && ok(l) {
				return true
			}
		}
		return false
	})
}

// recordedUntil waits until the lock of the recording has met a condition for a time.
func (s *scene) recordedUntil(long time.Duration, ok func(*keyspace.Lock) bool) {
	s.Helper()
	var since time.Time
	recordedUntil(s.T, s.file, "the same for a while", func(snap keyspace.Snapshot) bool {
		for _, l := range snap.Locks {
			if l.Key == sceneKey && ok(l) {
				if since.IsZero() {
					since = snap.At
				}
				return snap.At.Sub(since) >= long
			}
		}
		since = time.Time{}
		return false
	})
}

func isConnected(l *keyspace.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Addr != "" }
func hasHolder(l *keyspace.Lock) bool   { return len(l.Holders) == 1 }
func isWaitedFor(l *keyspace.Lock) bool { return l.WaiterCount() > 0 }

// explained waits until explain names a cause, and returns the story.
func (s *scene) explained(cause incident.Cause) (d render.Story) {
	s.Helper()
	var out []byte
	for deadline := time.Now().Add(longestWait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var all render.StoryDocument
		out, _ = exec.Command("locktop", "explain", sceneKey, s.file, "--json").Output()
		if json.Unmarshal(out, &all) == nil && len(all.Stories) > 0 && all.Stories[0].Cause == cause && (!all.Stories[0].Ongoing || cause == incident.NeverExpires) {
			text, _ := exec.Command("locktop", "explain", sceneKey, s.file).Output()
			s.Logf("%s", text)
			return all.Stories[0]
		}
	}
	s.Fatalf("explain never says %s, but:\n%s", cause, out)
	return d
}

// Real clients have the commonest incidents on a real server; the recorder of the program
// records them, and explain names their causes and costs.
func TestExplainNamesWhatRealClientsDid(t *testing.T) {
	testtier.Long(t, "locks expire in real time")
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		holder := s.hold(20 * time.Second) // a busy recorder sees its connection and the end of it
		s.wait("worker-2", 0)
		s.recorded("its connection", isConnected)
		if err := holder.Close(); err != nil {
			t.Fatal(err)
		}
		story := s.explained(incident.HolderGone)
		if !strings.Contains(story.Headline, "worker-7") || story.BlockedMS == 0 || story.Clients != 1 {
			t.Errorf("it says %+v", story)
		}
	})
	t.Run("frozen", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		holder := s.hold(8 * time.Second)
		s.wait("worker-2", 0)
		s.renew(holder, 10, 8*time.Second) // then it does nothing, and stays connected
		s.recorded("its connection", func(l *keyspace.Lock) bool { return isConnected(l) && l.Renewals > 5 })
		story := s.explained(incident.HolderFrozen)
		if !strings.Contains(story.Headline, "worker-7") || !story.AtMost || story.BlockedMS < 6000 || story.BlockedMS > 9000 {
			t.Errorf("it says %+v", story)
		}
	})
	t.Run("evicted", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb")
		s.hold(time.Minute)
		s.recorded("the lock", isConnected)
		if err := s.rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
			t.Fatal(err)
		}
		s.rdb.Set(t.Context(), "ordinary", strings.Repeat("x", 2000), 0) // it evicts what expires soonest
		if story := s.explained(incident.Evicted); !strings.Contains(story.Lines[1].Text, "volatile-ttl") {
			t.Errorf("it says %+v", story)
		}
	})
	t.Run("deleted by hand", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		s.waitBehind("worker-3")
		s.rdb.Del(t.Context(), sceneKey)
		s.explained(incident.Deleted)
	})
	for _, tt := range []struct {
		cause incident.Cause
		says  string
		play  func(s *scene)
	}{
		{incident.Expired, "no connection had the name worker-7. With CLIENT SETNAME worker-7", func(s *scene) { // killed, but without a name
			holder := s.holdAs("", 3*time.Second)
			s.recorded("the lock", hasHolder)
			_ = holder.Close()
		}},
		{incident.RenewalsStopped, "no connection had the name worker-7", func(s *scene) {
			s.renew(s.holdAs("", 2*time.Second), 6, 2*time.Second)
		}},
		{incident.NeverExpires, "The connection of worker-7, which held lock:nightly, ended", func(s *scene) {
			holder := s.hold(0)
			s.recorded("its connection", isConnected)
			_ = holder.Close()
		}},
		{incident.TTLTooShort, "is too short", func(s *scene) {
			s.hold(3 * time.Second) // it works for longer
			s.wait("worker-2", 10*time.Millisecond)
		}},
		{incident.SlowHolder, "worker-2 held lock:nightly for", func(s *scene) {
			var all []<-chan struct{}
			for range 7 {
				all = append(all, s.wait("worker-2", 100*time.Millisecond))
			}
			for _, ended := range all {
				<-ended
			}
			s.wait("worker-2", 7*time.Second)
			s.recorded("a hold", hasHolder)
			s.wait("worker-2", 0)
		}},
		{incident.SlowHandOff, "Nobody held lock:nightly from", func(s *scene) { // the waiter has missed the message
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
		{incident.Deadlock, "was in a deadlock of 2 owners", func(s *scene) {
			s.fair(sceneKey, 1, 2)
			s.fair("lock:other", 2, 1)
			s.recordedUntil(4*time.Second, isWaitedFor)
			s.do("DEL lock:other redisson_lock_queue:{lock:other} redisson_lock_timeout:{lock:other}", "DEL redisson_lock_queue:{"+sceneKey+"} redisson_lock_timeout:{"+sceneKey+"}")
		}},
		{incident.Flushed, "The database was emptied", func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			s.do("FLUSHDB")
		}},
		{incident.Restart, "A restart of the server lost lock:nightly", func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			if err := errors.Join(s.server.Kill(), s.server.Restart(s.Context())); err != nil {
				s.Fatal(err)
			}
		}},
		{incident.Stolen, "from worker-3, which had not released it", func(s *scene) {
			s.waitBehind("worker-3")
			s.do("SET " + sceneKey + " " + tokenOf("thief") + " PX 60000")
		}},
	} {
		t.Run(string(tt.cause), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			tt.play(s)
			if text := fmt.Sprint(s.explained(tt.cause)); !strings.Contains(text, tt.says) {
				t.Errorf("no %q in %s", tt.says, text)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		var all []<-chan struct{}
		for range 5 {
			all = append(all, s.wait("worker-2", 100*time.Millisecond))
		}
		for _, ended := range all {
			<-ended
		}
		out, err := exec.Command("locktop", "explain", sceneKey, s.file).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "No incident from ") || !strings.Contains(string(out), "holds ended") {
			t.Errorf("it says %s%v", out, err)
		}
	})
}
