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

// isLocking asks the server whether an owner has the lock.
func (r *rig) isLocking(l *classic.Counted) bool { return check.Must(l.IsLocking(ctx))(r) }

// Each renewal but the first comes when the lock has just expired.
func TestRenewalsComeTooLate(t *testing.T) {
	for _, renewals := range []int{0, 1, 4} {
		inBubble(t, func(r *rig) {
			owner := r.counted(classic.Options{TTL: time.Second, Renewals: renewals})
			other := r.counted(classic.Options{})
			began := time.Now()
			outer := r.take(owner)
			time.Sleep(999 * time.Millisecond)
			check.Require(r, r.try(other) == nil && r.isLocking(owner), "lapsed too early")
			time.Sleep(2 * time.Millisecond)
			check.False(r, r.isLocking(owner), "%d renewals: it has not lapsed", renewals)
			r.take(other)
			check.Equal(r, outer.Deadline().Sub(began), time.Second, "from the beginning to the deadline")
			inner := r.take(owner) // beside the other owner
			check.False(r, r.lost(inner.Unlock(ctx)), "the inner exit noticed")
			check.True(r, r.lost(outer.Unlock(ctx)) && r.isLocking(other), "the last exit did not notice, or did harm")
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
		check.False(r, r.isLocking(owner), "the server has the token")
	})
}

func TestARenewalLeavesAStrangersLockAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.take(r.counted(classic.Options{TTL: time.Minute, Renewals: 4}))
		r.must(r.rdb.Set(ctx, "orders", "stranger", 90*time.Second).Err())
		time.Sleep(91 * time.Second)
		check.Equal(r, r.rdb.Exists(ctx, "orders").Val(), 0, "the stranger's lock was renewed")
	})
}

func TestTheLastExitFreesACountedLock(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner, other := r.counted(classic.Options{TTL: time.Minute}), r.counted(classic.Options{TTL: time.Minute})
		first, second := r.take(owner), r.take(owner)
		r.must(first.Unlock(ctx))
		check.True(r, r.lost(first.Unlock(ctx)), "an entry was left twice")
		check.Require(r, r.try(other) == nil && r.isLocking(owner), "free before the last exit")
		r.must(second.Unlock(ctx))
		check.False(r, r.isLocking(owner), "it still has the lock")
		r.take(other)
	})
}

// The renewals end with the unlock, with that of another key, and with the client.
func TestWhatACountedLockSends(t *testing.T) {
	const first = "set evalsha eval" // the server does not know the script yet
	for name, c := range map[string]struct {
		hooks  classic.Hooks
		unlock string
		want   string
	}{
		"alive":           {want: first + " evalsha evalsha evalsha"},
		"dead":            {hooks: dyingBefore(classic.BeforeRenew), want: "set"},
		"unlocked":        {unlock: "orders", want: first + " evalsha eval"},
		"others unlocked": {unlock: "others", want: first + " set evalsha evalsha eval"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tape := r.record()
				owner := r.counted(classic.Options{TTL: time.Minute, Renewals: 4, Hooks: c.hooks})
				held := r.take(owner)
				time.Sleep(time.Second)
				if c.unlock == "others" {
					held = r.take(owner.With(c.unlock))
					time.Sleep(time.Second)
				}
				if c.unlock != "" {
					r.must(held.Unlock(ctx))
				}
				time.Sleep(time.Hour)
				check.Equal(r, tape.String(), c.want)
			})
		})
	}
}
