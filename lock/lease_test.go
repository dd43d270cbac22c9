package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/lock"
)

// Scenario 6: a failed TryLock returns nil, on which a deferred Unlock is called.
func TestANilOrZeroLeaseIsNotValid(t *testing.T) {
	for name, lease := range map[string]*lock.Lease{"nil": nil, "zero": new(lock.Lease)} {
		check.False(t, lease.Valid(), "%s is valid", name)
		check.ErrorIs(t, lease.Unlock(ctx), lock.ErrArgument, "unlock %s", name)
		check.ErrorIs(t, lease.Extend(ctx, time.Second), lock.ErrArgument, "extend %s", name)
		check.ErrorIs(t, context.Cause(lease.Context()), lock.ErrArgument, "the context of %s", name)
		check.True(t, lease.Key()+lease.Token() == "" && fenceOf(lease) == 0 && lease.Deadline().IsZero() && lease.Votes() == nil &&
			lease.ContextFrom(ctx).Err() != nil, "%s is a lease", name)
	}
}

// Scenario 12. A caller cannot choose the token, so a second request with a token is a
// repetition of the first. It changes nothing.
func TestARepeatedRequestOfATokenHasTheSameHold(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{Fence: true}))
		acquire := source(r, "waiters_common.lua", "waiters_acquire.lua", "mutex_acquire.lua")
		again, err := r.rdb.Eval(ctx, acquire, []string{"orders", "{orders}:fence"}, lease.Token(), 60_000).Int64()
		check.True(r, err == nil && again == fenceOf(lease),
			"the same token got fence %d, %v; want %d, that of its hold", again, err, fenceOf(lease))
		refusal, err := r.rdb.Eval(ctx, acquire, []string{"orders", "{orders}:fence"}, "another", 60_000).Slice()
		check.True(r, err == nil && len(refusal) == 2 && refusal[0] == lease.Token(), "another token got %v, %v; want a refusal", refusal, err)
		r.holds("orders", lease.Token())
		r.must(lease.Unlock(ctx))
		r.holds("orders", "")
	})
}

// Scenarios 83 and 88: the reply arrives at the moment at which the context ends, which does not end the lease.
func TestACallEndsWithALeaseOrWithoutALock(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		granted, gaveUp := 0, 0
		for round := range testtier.Size(15, 60, 60) {
			kinds := everyKind(c, fmt.Sprint("orders", round), lock.Options{TTL: time.Hour})
			for _, name := range slices.Sorted(maps.Keys(kinds)) {
				short, cancel := context.WithTimeout(ctx, time.Second)
				r.link.FreezeReplies()
				thaw := time.AfterFunc(time.Second, r.link.Thaw)
				lease, err := kinds[name].Lock(short)
				cancel()
				if thaw.Stop() {
					r.link.Thaw()
				}
				switch key := fmt.Sprint("orders", round, "-", name); {
				case err == nil:
					granted++
					check.True(r, lease.Valid() && r.rdb.Exists(ctx, key).Val() != 0, "%s: a lease without a lock", key)
					r.must(lease.Unlock(ctx))
				case lease != nil || !errors.Is(err, context.DeadlineExceeded):
					r.Fatalf("%s: got %v, %v", key, lease, err)
				default:
					gaveUp++
					time.Sleep(time.Second)
					check.Equal(r, r.rdb.Exists(ctx, key).Val(), 0, "%s: a lock without a lease", key)
				}
			}
		}
		r.Logf("%d leases, %d errors", granted, gaveUp)
	})
}

// Scenario 84. The context of Lock limits only the wait (scenario 88).
// context.AfterFunc releases a lease at the end of a context.
func TestALeaseThatIsTiedToAContextEndsWithIt(t *testing.T) {
	onBoth(t, func(r *rig) {
		work, cancel := context.WithCancel(ctx)
		lease := check.Must(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Minute}).Lock(work))(r)
		context.AfterFunc(work, func() { _ = lease.Unlock(work) })
		cancel()
		<-lease.Context().Done()
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrClosed, "it ended with")
		r.until("the release", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
		r.must(r.rdb.Set(ctx, "orders", "stranger", 0).Err())
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrClosed, "unlocked again")
		r.holds("orders", "stranger")
	})
}

// The same while the server does not answer: the release follows later.
func TestALeaseThatIsTiedToAContextEndsWithItThoughTheServerIsSilent(t *testing.T) {
	onChild(t, func(r *rig, child *server.Child) {
		work, cancel := context.WithCancel(ctx)
		lease := check.Must(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Hour}).Lock(work))(r)
		unlocked := make(chan error, 1)
		context.AfterFunc(work, func() { unlocked <- lease.Unlock(work) })
		r.must(child.Freeze())
		cancel()
		check.ErrorIs(r, <-unlocked, context.Canceled)
		check.False(r, lease.Valid(), "it is valid yet")
		r.must(child.Continue())
		r.until("the release", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
	})
}
