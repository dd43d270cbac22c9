package classic_test

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

// [TestWhoIsLateDeletesTheNextOwnersLock] has the case without the pause.
func TestWhatTimeRunsOutUnderIsDeleted(t *testing.T) {
	onBoth(t, func(r *rig) {
		open := func(h classic.Hooks) classic.Lock {
			return classic.NewGetThenDel(r.rdb, "orders", classic.Options{TTL: time.Minute, Hooks: h})
		}
		slow := r.take(open(before(classic.BeforeDel, func() error {
			r.outlast("orders")
			r.take(open(classic.Hooks{}))
			return nil
		})))
		check.False(r, r.lost(slow.Unlock(ctx)), "the slow one was told")
		check.True(r, r.try(open(classic.Hooks{})) != nil, "the next owner still holds the lock")
	})
}
