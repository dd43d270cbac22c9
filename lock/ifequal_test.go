package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// knowsIfEqual reports whether the server executes SET with IFEQ.
func (r *rig) knowsIfEqual() bool {
	r.Helper()
	err := r.rdb.Do(ctx, "set", "missing", "value", "ifeq", "value", "px", 1000).Err()
	check.Require(r, errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "syntax error"), "SET with IFEQ: %v", err)
	return errors.Is(err, redis.Nil)
}

func TestAnExtensionUsesIFEQIfTheServerKnowsIt(t *testing.T) {
	onRedis(t, func(r *rig) {
		known := r.knowsIfEqual()
		version := r.rdb.InfoMap(ctx, "server").Item("Server", "valkey_version")
		check.True(r, known || !strings.HasPrefix(version, "8.1."), "Valkey %s does not know IFEQ", version)
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Minute}))
		r.must(r.rdb.ConfigResetStat(ctx).Err())
		for range 5 {
			r.must(lease.Extend(ctx, 2*time.Minute))
			check.AtLeast(r, r.rdb.PTTL(ctx, "orders").Val(), 119*time.Second, "PTTL after an extension by 2 min")
		}
		scripts := r.calls("eval")
		if sets := r.calls("set"); known && (sets != 5 || scripts != 0) || !known && (sets != 1 || scripts < 5) {
			r.Errorf("5 extensions were %d SET and %d scripts; IFEQ known: %v", sets, scripts, known)
		}
		r.must(lease.Unlock(ctx))
	})
}

// withAndWithoutIFEQ runs f on a redis-server and on an embedded server that does not know
// IFEQ and one that does.
func withAndWithoutIFEQ(t *testing.T, f func(*rig)) {
	onBoth(t, f)
	sub(t, "IFEQ", inBubble, func(r *rig) {
		r.embedded.KnowIfEqual()
		check.Require(r, r.knowsIfEqual(), "the server does not know IFEQ")
		f(r)
	})
}

// Scenario 56: a late renewal must not create the key.
func TestAnExtensionChangesNoKeyOfAnother(t *testing.T) {
	for _, other := range []string{"", "stranger"} {
		withAndWithoutIFEQ(t, func(r *rig) {
			c := r.client(lock.Config{})
			for _, key := range []string{"first", "second"} { // the first extension asks for IFEQ
				lease := r.lock(c.Mutex(key, lock.Options{TTL: time.Minute}))
				r.must(lease.Extend(ctx, 2*time.Minute))
				r.must(r.rdb.Del(ctx, key).Err())
				if other != "" {
					r.must(r.rdb.Set(ctx, key, other, 10*time.Second).Err())
				}
				check.ErrorIs(r, lease.Extend(ctx, time.Minute), lock.ErrLost, "%s", key)
				check.False(r, lease.Valid(), "%s: the lease goes on", key)
				check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "%s: the lease ended with", key)
				r.holds(key, other)
				check.AtMost(r, r.rdb.PTTL(ctx, key).Val(), 10*time.Second, "%s: PTTL", key)
			}
		})
	}
}
