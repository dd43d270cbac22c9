package classic_test

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

func (r *rig) counted(o classic.Options) *classic.Counted {
	return classic.NewCounted(r.rdb, "orders", o)
}

func TestBoundedRenewalsLetTheLockLapseUnderItsHolder(t *testing.T) {
	for name, c := range map[string]struct {
		renewals int
		lapses   time.Duration
	}{
		"by default": {0, 7 * time.Second},
		"twice":      {2, 5 * time.Second},
		"never":      {-1, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				owner := r.counted(classic.Options{TTL: 3 * time.Second, Renewals: c.renewals})
				other := r.counted(classic.Options{})
				began := time.Now()
				outer := r.take(owner)
				time.Sleep(c.lapses - time.Millisecond)
				check.Require(r, r.try(other) == nil, "lapsed too early")
				time.Sleep(2 * time.Millisecond)
				r.take(other)
				check.Equal(r, outer.Deadline().Sub(began), c.lapses, "from the beginning to the deadline")
				check.True(r, owner.IsLocking() && other.IsLocking(), "the counters do not both say that they hold the lock")
				inner := r.take(owner) // beside the other owner
				check.False(r, r.lost(inner.Unlock(ctx)), "the inner exit noticed")
				check.True(r, r.lost(outer.Unlock(ctx)) && other.IsLocking(), "the last exit did not notice, or did harm")
			})
		})
	}
}

func TestTheCounterOutlivesTheKey(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner := r.counted(classic.Options{TTL: time.Minute})
		r.take(owner)
		r.must(r.rdb.Del(ctx, "orders").Err())
		r.take(r.counted(classic.Options{TTL: time.Minute}))
		r.take(owner)
		check.True(r, owner.IsLocking(), "the counter has noticed")
	})
}

func TestARenewalLeavesAStrangersLockAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.take(r.counted(classic.Options{TTL: time.Minute}))
		r.must(r.rdb.Set(ctx, "orders", "stranger", 30*time.Second).Err())
		time.Sleep(31 * time.Second)
		check.Equal(r, r.rdb.Exists(ctx, "orders").Val(), 0, "the stranger's lock was renewed")
	})
}

func TestTheLastExitFreesACountedLock(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner, other := r.counted(classic.Options{TTL: time.Minute}), r.counted(classic.Options{TTL: time.Minute})
		first, second := r.take(owner), r.take(owner)
		r.must(first.Unlock(ctx))
		check.True(r, r.lost(first.Unlock(ctx)), "an entry was left twice")
		check.Require(r, r.try(other) == nil && owner.IsLocking(), "free before the last exit")
		r.must(second.Unlock(ctx))
		check.False(r, owner.IsLocking(), "the counter is not at zero")
		r.take(other)
	})
}

func TestACountedLockIsNotRenewedAfterItsUnlockOrItsClientsDeath(t *testing.T) {
	for name, c := range map[string]struct {
		hooks  classic.Hooks
		unlock bool
		want   string
	}{
		"unlocked": {hooks: classic.Hooks{}, unlock: true},
		"dead":     {hooks: dyingBefore(classic.BeforeRenew)},
		"alive":    {want: "evalsha eval evalsha evalsha evalsha"}, // the server does not know the first script yet
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				h := r.take(r.counted(classic.Options{TTL: time.Minute, Hooks: c.hooks}))
				if c.unlock {
					r.must(h.Unlock(ctx))
				}
				tape := r.record()
				time.Sleep(time.Hour)
				check.Equal(r, tape.String(), c.want)
			})
		})
	}
}
