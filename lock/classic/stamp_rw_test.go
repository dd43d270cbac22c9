package classic_test

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

// stamp returns the view of a client whose clock shows noon plus ahead.
func (r *rig) stamp(ahead time.Duration) *classic.StampRW {
	return classic.NewStampRW(r.rdb, "orders", classic.Options{TTL: time.Second, Hooks: at(noon.Add(ahead))})
}

func TestASecondReadersStampKeepsTheFirstFromUnlocking(t *testing.T) {
	onBoth(t, func(r *rig) {
		first := r.take(r.stamp(0).Reader())
		second := r.take(r.stamp(time.Millisecond).Reader())
		check.True(r, r.lost(first.Unlock(ctx)), "the first unlocked what has the second's stamp")
		check.True(r, r.try(r.stamp(2*time.Millisecond).Writer()) == nil, "a writer got in beside the second")
		r.must(second.Unlock(ctx))
		r.take(r.stamp(3 * time.Millisecond).Writer())
		check.True(r, noon.Add(3*time.Millisecond).Before(first.Deadline()), "the first one's time was up anyway")
	})
}

// Corresponds to [TestWhoIsLateDeletesTheNextOwnersLock].
func TestALateWriterLeavesTheNextOnesStampAlone(t *testing.T) {
	onBoth(t, func(r *rig) {
		late := r.take(r.stamp(0).Writer())
		r.take(r.stamp(time.Second).Writer())
		check.True(r, r.lost(late.Unlock(ctx)) && r.try(r.stamp(time.Second).Writer()) == nil, "the late one deleted the next one's stamp")
	})
}

func TestTheHashOfStampsStays(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.take(r.stamp(0).Reader())
		check.Equal(r, r.rdb.PTTL(ctx, "orders").Val(), -1, "PTTL")
		check.True(r, r.try(r.stamp(time.Second-time.Millisecond).Writer()) == nil, "a writer got in too early")
		r.take(r.stamp(time.Second).Writer()) // because of the stamp alone
	})
}
