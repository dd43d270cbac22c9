package lock_test

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// Scenario 108. Promise P6.
func TestFencesRiseOverReleasesExpiriesAndRemovals(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		c := r.client(lock.Config{})
		m := c.Mutex("orders", lock.Options{Fence: true})
		var last int64
		for i := range 30 {
			lease := r.lock(m)
			check.Require(r, fenceOf(lease) > last, "round %d: fence %d after %d", i, fenceOf(lease), last)
			last = fenceOf(lease)
			switch i % 3 {
			case 0:
				r.must(lease.Unlock(ctx))
			case 1:
				r.must(r.rdb.PExpire(ctx, "orders", time.Millisecond).Err()) // expires
				r.until("the end of the key", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
			case 2:
				r.must(r.rdb.Del(ctx, "orders").Err()) // another client deletes the key
			}
		}
		check.Equal(r, r.rdb.Get(ctx, "{orders}:fence").Val(), "30", "the counter after 30 holds")
	})
}
