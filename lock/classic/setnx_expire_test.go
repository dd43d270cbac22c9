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

// Corresponds to [TestGetsetTakesOverOnlyWhatItHasRead].
func TestTwoThatAskBeforeEitherSetsHoldTogether(t *testing.T) {
	onBoth(t, func(r *rig) {
		var first classic.Hold
		second := r.take(classic.NewExistsSet(r.rdb, "orders", classic.Options{TTL: time.Second, Hooks: before(classic.BeforeSet, func() error {
			first = r.take(classic.NewExistsSet(r.rdb, "orders", classic.Options{TTL: time.Minute}))
			return nil
		})}))
		now := time.Now()
		check.True(r, now.Before(first.Deadline()) && now.Before(second.Deadline()), "one hold is over")
		check.Between(r, r.rdb.PTTL(ctx, "orders").Val(), 0, time.Second, "PTTL")
	})
}

func TestPollAsksOnceLessThanItSays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.take(r.counted(classic.Options{TTL: time.Minute}))
		tape := r.record()
		for _, tries := range []int{1, 4} {
			_, err := classic.Poll(ctx, r.counted(classic.Options{}), time.Second, tries)
			check.ErrorIs(r, err, classic.ErrHeld, "%d tries", tries)
		}
		check.Equal(r, tape.String(), "set set set")
		check.Must(classic.Poll(ctx, r.counted(classic.Options{}), time.Second, 99))(r)
	})
}
