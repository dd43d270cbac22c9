package classic_test

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock/classic"
)

// stamp returns the view of a client whose clock shows noon plus ahead.
func (r *rig) stamp(ahead time.Duration) *classic.StampRW {
	return classic.NewStampRW(r.rdb, "orders", classic.Options{TTL: 3 * time.Second, Hooks: at(noon.Add(ahead))})
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
		r.take(r.stamp(3001 * time.Millisecond).Writer())
		check.True(r, r.lost(late.Unlock(ctx)) && r.try(r.stamp(3001*time.Millisecond).Writer()) == nil, "the late one deleted the next one's stamp")
	})
}

// A side lasts for its time, and so does the hash.
func TestEachSideOfAStampHasItsTime(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, c := range []struct {
			first lockOf
			lasts time.Duration
		}{{(*classic.StampRW).Reader, time.Second}, {(*classic.StampRW).Writer, 3 * time.Second}} {
			h := r.take(c.first(r.stamp(0)))
			check.Between(r, r.rdb.PTTL(ctx, "orders").Val(), c.lasts-500*time.Millisecond, c.lasts, "PTTL")
			check.Equal(r, h.Deadline().Sub(noon), c.lasts, "the time of a hold")
			check.True(r, r.try(r.stamp(c.lasts).Writer()) == nil, "a writer got in too early")
			h = r.take(r.stamp(c.lasts + time.Millisecond).Writer()) // because of the stamp alone
			r.must(h.Unlock(ctx))
			r.rdb.Del(ctx, "orders")
		}
	})
}

type lockOf func(*classic.StampRW) classic.Lock

// A reader whose clock is ahead sets the expiry of the hash, in which the writer's stamp is, too.
func TestAReaderCutsTheTimeOfAWriter(t *testing.T) {
	onBoth(t, func(r *rig) {
		writing := r.take(r.stamp(0).Writer())
		r.take(r.stamp(3001 * time.Millisecond).Reader())
		r.outlast("orders") // a second
		r.take(r.stamp(time.Second + time.Millisecond).Writer())
		check.True(r, noon.Add(time.Second+time.Millisecond).Before(writing.Deadline()), "the first writer's time was up anyway")
	})
}
