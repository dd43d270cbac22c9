//go:build unix

package cli

import (
	"context"
	"encoding/json"
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
	rdb  *redis.Client
	file string
}

const sceneKey = "lock:nightly"

func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	s := &scene{T: t, rdb: redis.NewClient(&redis.Options{Addr: server.ForTest(t, args...).Addr()}), file: filepath.Join(t.TempDir(), "night.lockrec")}
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

// hold lets a client with a connection of its own acquire the lock.
func (s *scene) hold(ttl time.Duration) *redis.Client {
	s.Helper()
	holder := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, ClientName: "worker-7", PoolSize: 1})
	s.Cleanup(func() { _ = holder.Close() })
	token := "worker-7~" + uuid.Must(uuid.NewV7()).String()
	if ok, err := holder.SetNX(s.Context(), sceneKey, token, ttl).Result(); !ok || err != nil {
		s.Fatal("the lock is not free", err)
	}
	return holder
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

func isConnected(l *keyspace.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Addr != "" }
func isWaitedFor(l *keyspace.Lock) bool { return l.WaiterCount() > 0 }

// explained waits until explain names a cause, and returns the story.
func (s *scene) explained(cause incident.Cause) (d render.Story) {
	s.Helper()
	var out []byte
	for deadline := time.Now().Add(longestWait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var all render.StoryDocument
		out, _ = exec.Command("locktop", "explain", sceneKey, s.file, "--json").Output()
		if json.Unmarshal(out, &all) == nil && len(all.Stories) > 0 && all.Stories[0].Cause == cause && !all.Stories[0].Ongoing {
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
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range 10 { // then it does nothing, and stays connected
			<-tick.C
			holder.PExpire(t.Context(), sceneKey, 8*time.Second)
		}
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
		first, second := s.wait("worker-2", 300*time.Millisecond), s.wait("worker-2", 0)
		<-first // its release is announced, because one of the two waits
		<-second
		s.wait("worker-3", time.Minute)
		s.recorded("its hold", func(l *keyspace.Lock) bool { return len(l.Holders) == 1 && l.Holders[0].Label == "worker-3" })
		s.wait("worker-2", 0)
		s.recorded("a waiter", isWaitedFor)
		s.rdb.Del(t.Context(), sceneKey)
		s.explained(incident.Deleted)
	})
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
