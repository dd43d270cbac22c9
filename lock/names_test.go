package lock_test

import (
	"context"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// A waiter for "{a}" receives no message of "a" and is not handed "a".
func TestLocksWhoseNamesDifferByBracesAreApart(t *testing.T) {
	onBoth(t, func(r *rig) {
		c, o := r.client(lock.Config{}), lock.Options{TTL: 10 * time.Second, Fence: true}
		for _, pair := range [][2]lock.Locker{
			{c.Fair("a", o), c.Fair("{a}", o)},
			{c.Fair("b{c}", o), c.Fair("{b{c}", o)},
		} {
			plain := r.lock(pair[0])
			braced := r.lock(pair[1])
			check.True(r, fenceOf(plain) == 1 && fenceOf(braced) == 1,
				"%q and %q share a counter: %d and %d", plain.Key(), braced.Key(), fenceOf(plain), fenceOf(braced))
			patient, cancel := context.WithCancel(ctx)
			waiter := inBackground(func() error { return tried(pair[1].Lock(patient)) })
			r.until("a waiter in the queue", func() bool { return len(r.rdb.Keys(ctx, "*:waiters").Val()) == 1 })
			r.must(plain.Unlock(ctx))
			r.holds(plain.Key(), "")
			if r.fake {
				time.Sleep(400 * time.Millisecond)
			}
			cancel()
			check.ErrorIs(r, <-waiter, context.Canceled, "%q was granted while it was held", braced.Key())
			r.must(braced.Unlock(ctx))
			r.until("the queue to be left", func() bool { return len(r.rdb.Keys(ctx, "*:waiters").Val()) == 0 })
		}
	})
}

func TestAWaiterDoesNotSleepBehindOneForAnotherName(t *testing.T) {
	inBubble(t, func(r *rig) {
		others, c, o := r.client(lock.Config{}), r.client(lock.Config{}), lock.Options{TTL: time.Hour}
		_ = r.lock(others.Mutex("{a}", o))
		plain := r.lock(others.Mutex("a", o))
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		lockAsync(limited, c.Mutex("{a}", o))
		time.Sleep(time.Second)
		next := lockAsync(limited, c.Mutex("a", o))
		time.Sleep(time.Second)
		r.passesOn(plain, next, 10*time.Millisecond, "the next one got in after the release")
	})
}
