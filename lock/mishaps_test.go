package lock_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock"
)

// DEL, FLUSHALL and eviction free a lock without a message to its waiters.
func TestAWaiterFindsALockThatWasDeleted(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, b, o := r.client(lock.Config{}), r.client(lock.Config{}), lock.Options{TTL: 6 * time.Hour}
		for _, kind := range []string{"mutex", "reentrant", "fair", "semaphore", "writer", "reader"} {
			holder := kind
			if kind == "reader" {
				holder = "writer"
			}
			held := r.locked(kinds[holder](a, kind, o))
			time.AfterFunc(time.Minute, func() { r.rdb.Del(ctx, kind) })
			began := time.Now()
			next := r.lock(kinds[kind](b, kind, o))
			check.Between(r, time.Since(began)-time.Minute, 0, 8*time.Second, "%s: found after it was deleted", held.Key())
			r.must(next.Unlock(ctx))
		}
	})
}

// A server that cannot save its data refuses all writes, including releases.
func TestAServerThatCannotSaveIsAnErrorThatPasses(t *testing.T) {
	r := newRig(t, servertest.RedisForTest(t, "--dbfilename", "x.rdb").Addr(), redis.NewDialer(&redis.Options{}))
	dir := r.rdb.ConfigGet(ctx, "dir").Val()["dir"]
	a, b := r.client(lock.Config{}), r.client(lock.Config{})
	held := r.lock(a.Mutex("held", lock.Options{TTL: time.Hour})) // so that only its release frees it
	next := inBackground(func() error { return tried(b.Mutex("held", lock.Options{}).Lock(r.soon(time.Minute))) })
	r.untilListening("held", 1)
	r.must(os.MkdirAll(filepath.Join(dir, "x.rdb", "y"), 0o755)) // in place of the file
	r.must(r.rdb.ConfigSet(ctx, "save", "3600 1").Err())
	r.rdb.BgSave(ctx)
	r.until("the save to fail", func() bool {
		return strings.Contains(r.rdb.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	check.ErrorIs(t, tried(a.Mutex("orders", lock.Options{}).TryLock(ctx)), lock.ErrUnavailable, "TryLock")
	check.ErrorIs(t, held.Unlock(ctx), lock.ErrUnavailable, "Unlock")
	r.must(r.rdb.ConfigSet(ctx, "stop-writes-on-bgsave-error", "no").Err())
	r.must(<-next)
}

func TestALockWhoseCounterIsFullIsNotHeld(t *testing.T) {
	onBoth(t, func(r *rig) {
		c, o := r.client(lock.Config{}), lock.Options{TTL: time.Minute, Fence: true}
		for _, key := range []string{"mutex", "reentrant", "fair", "writer"} {
			l := kinds[key](c, key, o)
			r.must(r.rdb.Set(ctx, "{"+key+"}:fence", "no number", 0).Err())
			for _, try := range []func(context.Context) (*lock.Lease, error){l.TryLock, l.Lock} {
				_, err := try(ctx)
				check.True(r, err != nil, "%s: locked without a number", key)
			}
			if r.rdb.Exists(ctx, key).Val() > 0 {
				r.Errorf("%s: no client has it, but it is held for %v", key, r.rdb.PTTL(ctx, key).Val())
			}
		}
	})
}
