package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
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
