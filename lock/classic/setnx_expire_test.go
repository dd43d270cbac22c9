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
		_, err := victim.TryLock(ctx)
		check.Require(r, errors.Is(err, errKilled), "got %v", err)
		check.Equal(r, r.rdb.PTTL(ctx, "orders").Val(), -1, "PTTL")
		if r.fake {
			time.Sleep(365 * 24 * time.Hour)
		}
		check.True(r, r.try(classic.NewSetnxExpire(r.rdb, "orders", classic.Options{})) == nil, "the lock is free")
	})
}
