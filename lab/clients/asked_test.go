//go:build unix

package clients

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// A client that polls leaves no entry on the server, and its lock counts as asked for. A lock
// that no other client wants does not.
func TestALockThatAClientPollsForIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range clients(t) {
		if !c.polls {
			continue
		}
		t.Run(strings.TrimSpace(c.Name), func(t *testing.T) {
			t.Parallel()
			addr := servertest.RedisForTest(t).Addr()
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer rdb.Close()
			const ttl, wait = time.Minute, 5 * time.Second
			holder, waiter := startProgram(t, addr, c.Command), startProgram(t, addr, c.Command)
			holder.lock(t, "lock:quiet", ttl, wait)
			holder.lock(t, "lock:wanted", ttl, wait)
			b := inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()})))
			defer b.Close()
			await(t, b, func(s keyspace.Snapshot) bool {
				return s.Complete && s.Watch.Mode == keyspace.Push && len(s.Locks) == 2
			})
			began := time.Now()
			var waits sync.WaitGroup
			defer waits.Wait()
			waits.Go(func() { waiter.lock(t, "lock:wanted", ttl, wait) })
			var asked []string
			await(t, b, func(s keyspace.Snapshot) bool {
				for _, l := range s.Locks {
					if l.Asked(s.At) {
						asked = append(asked, l.Key)
					}
				}
				return len(asked) > 0
			})
			took := time.Since(began)
			t.Logf("seen after %v", took)
			check.True(t, len(asked) == 1 && strings.HasSuffix(asked[0], "lock:wanted"), "%q are asked for", asked)
			check.True(t, !testtier.Proving() || took <= 2*time.Second, "the request was seen after %v", took)
		})
	}
}

// await takes snapshots until a condition holds.
func await(t *testing.T, b *inspect.BackgroundWatcher, so func(keyspace.Snapshot) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s, err := b.Snapshot(t.Context())
		if err == nil && so(s) {
			return
		}
		check.Require(t, !time.Now().After(deadline), "%v: %d locks, %+v", err, len(s.Locks), s.Watch)
	}
}
