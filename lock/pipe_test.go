package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/lock"
)

func TestAcquiresThatAreGivenUpAreUndoneAmongOthers(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		var crowd sync.WaitGroup
		for i := range 16 {
			crowd.Go(func() {
				for n := range testtier.Size(30, 150, 150) {
					r.lockBriefly(c.Mutex(fmt.Sprintf("orders:%d:%d", i, n), lock.Options{TTL: time.Hour}))
					if i >= 4 && n%10 == 0 {
						time.Sleep(rand.N(5 * time.Millisecond)) // a caller is sometimes alone
					}
				}
			})
		}
		crowd.Wait()
		r.until("what was given up to be undone", func() bool { return r.rdb.DBSize(ctx).Val() == 0 })
	})
}

// lockBriefly locks with a short timeout, and checks the result.
func (r *rig) lockBriefly(m *lock.Mutex) {
	brief := r.soon(rand.N(400 * time.Microsecond))
	lease, err := m.TryLock(brief)
	if err != nil {
		check.ErrorIs(r, err, context.DeadlineExceeded)
		return
	}
	check.Equal(r, r.rdb.Get(ctx, lease.Key()).Val(), lease.Token(), "%q holds", lease.Key())
	check.ErrorIs(r, lease.Unlock(ctx), nil)
}

func TestLocksAreWhereTheClientPointsTo(t *testing.T) {
	child := server.ForTest(t, "--requirepass", "secret")
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), Password: "secret", DB: 5})
	t.Cleanup(func() { rdb.Close() })
	c := check.Must(lock.New(rdb, lock.Config{}))(t)
	t.Cleanup(func() { c.Close() })
	lease := check.Must(c.Mutex("orders", lock.Options{}).TryLock(ctx))(t)
	check.Equal(t, rdb.Get(ctx, "orders").Val(), lease.Token(), "database 5 holds")
}

func TestAUserWhoMayNotPingCanLock(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.user("~*", "+@all", "-ping")
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		r.must(r.locked(c.Mutex("orders", lock.Options{})).Unlock(ctx))
	})
}
