package classic_test

import (
	"errors"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

func TestACrashBeforeTheExpiryLeavesALockForEver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		victim := classic.NewSetnxExpire(r.rdb, "orders", classic.Options{TTL: time.Minute, Hooks: dyingBefore(classic.BeforeExpire)})
		if _, err := victim.TryLock(ctx); !errors.Is(err, errKilled) {
			r.Fatalf("got %v", err)
		}
		check.Equal(r, r.rdb.PTTL(ctx, "orders").Val(), -1, "PTTL")
		if r.fake {
			time.Sleep(365 * 24 * time.Hour)
		}
		if r.try(classic.NewSetnxExpire(r.rdb, "orders", classic.Options{})) != nil {
			r.Error("the lock is free")
		}
	})
}

func TestSetnxExpireThatIsNotStoppedExpires(t *testing.T) {
	onBoth(t, func(r *rig) {
		l := classic.NewSetnxExpire(r.rdb, "orders", classic.Options{})
		r.take(l)
		r.outlast("orders")
		r.take(l)
	})
}
