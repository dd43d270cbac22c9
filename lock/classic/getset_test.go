package classic_test

import (
	"fmt"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

// getset returns the view of a client whose clock shows noon plus ahead.
func (r *rig) getset(ttl, ahead time.Duration) *classic.Getset {
	return classic.NewGetset(r.rdb, "orders", classic.Options{TTL: ttl, Hooks: at(noon.Add(ahead))})
}

func TestClientsWhoseClocksDifferHoldGetsetTogether(t *testing.T) {
	onBoth(t, func(r *rig) {
		const ttl, skew = time.Second, 2 * time.Second
		first := r.take(r.getset(ttl, 0))
		check.True(r, r.try(r.getset(ttl, 0)) == nil, "two hold the lock whose clocks agree")
		r.take(r.getset(ttl, skew))
		check.True(r, noon.Before(first.Deadline()), "the first hold is over")
	})
}

func TestALoserOverwritesTheWinnersExpiry(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.take(r.getset(time.Minute, -time.Hour)) // its holder died long ago

		var winner classic.Hold
		hooks := before(classic.BeforeGetset, func() error {
			winner = r.take(r.getset(10*time.Second, 0))
			return nil
		})
		hooks.Now = at(noon).Now
		loser := classic.NewGetset(r.rdb, "orders", classic.Options{TTL: 2 * time.Second, Hooks: hooks})
		check.Require(r, r.try(loser) == nil, "two have taken over")
		stamp := check.Must(r.rdb.Get(ctx, "orders").Int64())(r)
		got, want := time.UnixMilli(stamp), noon.Add(2*time.Second)
		check.True(r, got.Equal(want), "the key says %v, want what the loser wrote: %v", got, want)
		const later = 3 * time.Second
		r.take(r.getset(time.Second, later)) // all clocks are right
		check.True(r, noon.Add(later).Before(winner.Deadline()), "the winner's hold is over")
	})
}

func TestGetsetIsTakenOverOnlyOnceItsStampHasPassed(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.take(r.getset(time.Second, 0))
		check.True(r, r.try(r.getset(time.Second, time.Second)) == nil, "taken over too early")
		h := r.take(r.getset(time.Second, time.Second+time.Millisecond))
		want := noon.Add(2*time.Second + time.Millisecond)
		check.True(r, h.Deadline().Equal(want), "deadline %v, want %v", h.Deadline(), want)
	})
}

func TestGetsetLeavesWhatIsNoStampAlone(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.must(r.rdb.Set(ctx, "orders", "stranger", 0).Err())
		if _, err := r.getset(time.Second, 0).TryLock(ctx); err == nil || r.rdb.Get(ctx, "orders").Val() != "stranger" {
			r.Errorf("got %v, and the key holds %q", err, r.rdb.Get(ctx, "orders").Val())
		}
	})
}

// It has acquired the lock only if GETSET returns what GET returned, whatever its clock says.
func TestGetsetTakesOverOnlyWhatItHasRead(t *testing.T) {
	onBoth(t, func(r *rig) {
		for step, meanwhile := range map[classic.Step]func() error{
			classic.BeforeGet:    func() error { return r.rdb.Del(ctx, "orders").Err() },
			classic.BeforeGetset: func() error { r.take(r.getset(time.Second, 0)); return nil },
		} {
			r.must(r.rdb.Set(ctx, "orders", noon.Add(-time.Minute).UnixMilli(), 0).Err())
			hooks := before(step, meanwhile)
			hooks.Now = at(noon.Add(3 * time.Second)).Now
			check.True(r, r.try(classic.NewGetset(r.rdb, "orders", classic.Options{Hooks: hooks})) == nil, "acquired, changed before %s", step)
		}
	})
}

// That of the second article has a later stamp, and an expiry.
func TestTheTolerantGetsetExpires(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, old := range []string{"", "1"} {
			if old != "" {
				r.must(r.rdb.Set(ctx, "orders", old, 0).Err())
			}
			h := r.take(classic.NewGetset(r.rdb, "orders", classic.Options{TTL: time.Minute, Tolerant: true, Hooks: at(noon)}))
			stamp, left := r.rdb.Get(ctx, "orders").Val(), r.rdb.PTTL(ctx, "orders").Val()
			check.Equal(r, stamp, fmt.Sprint(noon.Add(61*time.Second).UnixMilli()), "the stamp")
			check.Between(r, left, 50*time.Second, time.Minute, "PTTL")
			check.True(r, h.Deadline().Equal(noon.Add(time.Minute)), "deadline %v", h.Deadline())
			r.must(h.Unlock(ctx))
		}
	})
}
