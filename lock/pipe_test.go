package lock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock"
)

func TestLocksAreWhereTheClientPointsTo(t *testing.T) {
	child := servertest.RedisForTest(t, "--requirepass", "secret")
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), Password: "secret", DB: 5})
	t.Cleanup(func() { rdb.Close() })
	c := check.Must(lock.New(rdb, lock.Config{}))(t)
	t.Cleanup(func() { c.Close() })
	lease := check.Must(check.Must(c.Mutex("orders", lock.Options{}))(t).TryLock(ctx))(t)
	check.Equal(t, rdb.Get(ctx, "orders").Val(), lease.Token(), "database 5 holds")
}

func TestAUserWhoMayNotPingCanLock(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.user("~*", "+@all", "-ping")
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		r.must(r.locked(c.Mutex("orders", lock.Options{})).Unlock(ctx))
	})
}
