package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock"
)

// Scenario 81.
func TestADeadContextSendsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		dead, cancel := context.WithCancel(ctx)
		cancel()
		c := r.client(lock.Config{})
		m := c.Mutex("orders", lock.Options{})
		r.must(r.lock(m).Unlock(ctx)) // the connection is open now
		before := c.Stats()
		for _, try := range []func(context.Context) (*lock.Lease, error){m.TryLock, m.Lock} {
			check.ErrorIs(r, tried(try(dead)), context.Canceled)
		}
		synctest.Wait()
		check.DeepEqual(r, c.Stats(), before, "an acquire was tried")
	})
}

func TestAnUnlockIntoAnOutageIsMadeGood(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Minute}))
		r.link.Refuse(errors.New("no route"))
		r.link.Cut()
		check.Require(r, lease.Unlock(ctx) != nil, "an unlock that did not reach the server succeeded")
		r.holds("orders", lease.Token())
		r.link.Refuse(nil)
		r.until("the release", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
	})
}

func TestAClosedPortIsAnErrorAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		refused := errors.New("connection refused")
		r.link.Refuse(refused)
		began := time.Now()
		_, err := r.client(lock.Config{}).Mutex("orders", lock.Options{}).Lock(ctx)
		check.True(r, errors.Is(err, refused) && time.Since(began) <= 0, "got %v after %v", err, time.Since(began))
	})
}

// Scenario 93, the part that one server can show.
func TestErrorsTellWhyTheServerRefuses(t *testing.T) {
	onRedis(t, func(r *rig) {
		for _, c := range []struct {
			name  string
			setup [][]any
			undo  [][]any
			want  error
		}{
			{"replica", [][]any{{"replicaof", "127.0.0.1", "1"}}, [][]any{{"replicaof", "no", "one"}}, lock.ErrUnavailable},
			{"no right", [][]any{{"acl", "setuser", "default", "-set"}}, [][]any{{"acl", "setuser", "default", "+@all"}}, lock.ErrNoPermission},
			{"no scripts", [][]any{{"acl", "setuser", "default", "-@scripting"}}, [][]any{{"acl", "setuser", "default", "+@all"}}, lock.ErrNoPermission},
		} {
			for _, args := range c.setup {
				r.must(r.rdb.Do(ctx, args...).Err())
			}
			err := tried(r.client(lock.Config{}).Mutex("orders", lock.Options{}).Lock(ctx))
			check.ErrorIs(r, err, c.want, "%s", c.name)
			check.Equal(r, redis.HasErrorPrefix(err, "READONLY"), c.name == "replica", "%s is a read-only replica: %v", c.name, err)
			r.holds("orders", "") // a free lock is acquired without a script, but released by one
			for _, args := range c.undo {
				r.must(r.rdb.Do(ctx, args...).Err())
			}
		}
	})
}

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

// A user with the permissions that the documentation lists can use every kind of lock, and wait for
// it. Without PUBSUB NUMSUB it can, too.
func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	page := string(check.Must(os.ReadFile("../docs/library.md"))(t))
	line := regexp.MustCompile(`(?m)^ACL SETUSER app reset on ">CHANGE-ME" (.*)$`).FindStringSubmatch(page)
	check.Require(t, line != nil, "docs/library.md has no ACL line")
	rules := strings.Fields(strings.ReplaceAll(line[1], `"`, ""))
	for name, also := range map[string][]string{"documented": nil, "without PUBSUB": {"-pubsub"}} {
		sub(t, name, onRedis, func(r *rig) {
			granted := slices.Concat(rules, also)
			if strings.Contains(r.rdb.Info(ctx, "server").Val(), "redis_version:6.0") {
				granted = slices.DeleteFunc(granted, func(rule string) bool { return rule == "resetchannels" || rule[0] == '&' })
			}
			c, other := r.user(granted...), r.user(granted...)
			for kind, l := range everyKind(c, "orders", lock.Options{TTL: time.Minute}) {
				lease := r.locked(l)
				next := lockAsync(ctx, kinds[kind](other, "orders-"+kind, lock.Options{TTL: time.Minute}))
				switch kind {
				case "reader": // shares the lock
				case "writer": // claims to be the next one
					r.claimed("orders-writer")
				case "fair":
					r.queued("orders-fair", 1)
				default:
					r.until("a registered process", func() bool { return r.rdb.ZCard(ctx, "{orders-"+kind+"}:waiters").Val() == 1 })
				}
				r.must(lease.Extend(ctx, time.Minute))
				r.must(lease.Unlock(ctx))
				r.must(r.won(next).Unlock(ctx))
			}
			fenced := r.locked(c.Mutex("orders", lock.Options{Fence: true}))
			check.Equal(r, fenceOf(fenced), int64(1), "fence")
			r.must(fenced.Unlock(ctx))
			s := c.Semaphore("orders-limited", 1, lock.Options{})
			r.must(s.SetLimit(ctx, 2))
			r.counts(s, 2, 0)
			for kind, look := range lookups(c, "orders-free", lock.Options{}) {
				held, err := look.Holder(ctx)
				check.True(r, held == nil && err == nil, "Holder of a free %s: %v, %v", kind, held, err)
			}
			if also == nil {
				check.Contains(r, r.rdb.Info(ctx, "commandstats").Val(), "cmdstat_pubsub", "a release asks for the subscribers")
				check.Equal(r, fmt.Sprint(r.rdb.Do(ctx, "ACL", "LOG").Val()), "[]", "refused commands")
			}
		})
	}
}
