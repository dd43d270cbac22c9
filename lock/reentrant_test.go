package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// count returns the number of holder's entries on the server.
func (r *rig) count(key, holder string) int {
	n, err := r.rdb.HGet(ctx, key, holder).Int()
	check.Require(r, err == nil || err == redis.Nil, "%v", err)
	return n
}

// Scenarios 15 and 16.
func TestTheOwnerEntersAgainAndLeavesAsOften(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{TTL: 10 * time.Second})
		var leases []*lock.Lease
		for want := 1; want <= 3; want++ {
			lease := r.lock(owner)
			leases = append(leases, lease)
			n := r.count("orders", lease.Token())
			check.Require(r, n == want, "count %d after %d entries", n, want)
		}
		for left := 2; left >= 0; left-- {
			lease := leases[2-left]
			r.must(lease.Unlock(ctx))
			check.True(r, !lease.Valid() && errors.Is(context.Cause(lease.Context()), lock.ErrClosed), "an unlocked entry is still valid")
			check.ErrorIs(r, lease.Unlock(ctx), lock.ErrClosed, "unlocking an entry twice") // and gives back no other entry
			n := r.count("orders", lease.Token())
			check.Require(r, n == left, "count %d, want %d left", n, left)
			if left == 0 {
				continue
			}
			ttl := r.rdb.PTTL(ctx, "orders").Val()
			check.True(r, ttl > 9*time.Second, "PTTL fell to %v", ttl)
			last := leases[2]
			check.True(r, last.Valid() && last.Context().Err() == nil, "another entry ended too early")
		}
		r.holds("orders", "")
	})
}

// Scenarios 17 and 23: so is a new process with the same label.
func TestAnotherOwnerInTheSameProcessIsAStranger(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{Owner: "billing-7"})
		mine := r.lock(c.Reentrant("orders", lock.Options{}))
		check.Equal(r, r.heldBy(c.Reentrant("orders", lock.Options{})).Token, mine.Token(), "held by")
		r.refused(r.client(lock.Config{Owner: "billing-7"}).Reentrant("orders", lock.Options{}))
		check.Equal(r, r.count("orders", mine.Token()), 1, "count")
	})
}

// Scenario 18.
func TestEveryEntryIsLostWithTheKey(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{})
		leases := []*lock.Lease{r.lock(owner), r.lock(owner), r.lock(owner)}
		r.must(r.rdb.Del(ctx, "orders").Err())
		for i := range leases {
			limited := r.soon(5 * time.Second) // without it, the others could wait forever
			check.ErrorIs(r, leases[2-i].Unlock(limited), lock.ErrLost, "unlocking entry %d", 3-i)
			check.True(r, !leases[0].Valid() && errors.Is(context.Cause(leases[0].Context()), lock.ErrLost), "the first entry outlived the key")
		}
		again := r.lock(owner) // begins again at 1
		check.Equal(r, r.count("orders", again.Token()), 1, "count after a new beginning")
	})
}

// Scenario 19: after a lost reply the entry is repeated, and the count is correct.
func TestALostReplyIsNotCountedTwice(t *testing.T) {
	inBubble(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{TTL: time.Minute})
		first := r.lock(owner)
		r.link.FreezeReplies()
		short := r.soon(time.Second)
		_, err := owner.Lock(short)
		check.Require(r, errors.Is(err, context.DeadlineExceeded), "got %v", err)
		r.link.Thaw()
		n := r.count("orders", first.Token())
		check.Require(r, n == 2, "the server did not count the unheard entry: %d", n)
		second := r.lock(owner)
		check.Equal(r, r.count("orders", first.Token()), 2, "count after two entries")
		r.must(second.Unlock(ctx))
		r.must(first.Unlock(ctx))
		r.holds("orders", "")
	})
}

// Scenario 21: the value is the owner, in every goroutine.
func TestGoroutinesThatShareAnOwnerShareTheHold(t *testing.T) {
	onBoth(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{})
		var all sync.WaitGroup
		leases := make(chan *lock.Lease, 20)
		for range cap(leases) {
			all.Go(func() {
				lease := r.lock(owner)
				leases <- lease
			})
		}
		all.Wait()
		close(leases)
		lease := <-leases
		check.Equal(r, r.count("orders", lease.Token()), 20, "count")
		for other := range leases {
			all.Go(func() { r.must(other.Unlock(ctx)) })
		}
		all.Wait()
		check.Equal(r, r.count("orders", lease.Token()), 1, "count")
		r.must(lease.Unlock(ctx))
		r.holds("orders", "")
	})
}

// The owner does not wait behind goroutines of its process that wait for it, also if it waited
// before it acquired the lock, or acquires it without a message.
func TestTheOwnerNeverWaitsBehindItsWaiters(t *testing.T) {
	for _, kind := range []string{"reentrant", "writer"} {
		for _, found := range []bool{false, true} {
			sub(t, fmt.Sprint(kind, found), inBubble, func(r *rig) {
				c := r.client(lock.Config{})
				first, owner := r.lock(kinds[kind](r.near(), "orders", lock.Options{})), kinds[kind](c, "orders", lock.Options{})
				var waiting []*await
				for _, l := range []lock.Locker{owner, kinds[kind](c, "orders", lock.Options{}), owner} {
					waiting = append(waiting, lockAsync(ctx, l))
					time.Sleep(time.Millisecond)
				}
				if found {
					r.must(r.rdb.Del(ctx, "orders").Err())
					r.locked(owner)
				} else {
					r.must(first.Unlock(ctx))
				}
				released := time.Now()
				for _, a := range []*await{waiting[0], waiting[2], lockAsync(ctx, owner)} {
					synctest.Wait()
					check.Require(r, a.over(), "the owner waits for itself")
					r.must(a.err)
				}
				check.AtMost(r, time.Since(released), 0, "the owner entered after")
			})
		}
	}
}

func TestARenewedHoldKeepsAllItsEntries(t *testing.T) {
	inBubble(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{TTL: 3 * time.Second})
		first := r.lock(owner)
		second := r.lock(owner)
		time.Sleep(time.Minute)
		n := r.count("orders", first.Token())
		check.True(r, n == 2 && first.Valid() && second.Valid(), "after a minute: count %d, valid %v %v", n, first.Valid(), second.Valid())
		r.must(first.Unlock(ctx))
		time.Sleep(time.Minute)
		check.True(r, second.Valid(), "the renewal ended with the first entry")
		r.must(second.Unlock(ctx))
	})
}

// The common scripts for this format, as found in many programs.
const (
	commonTake = `
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
return 0`
	commonLeave = `
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
return 1`
)

func TestTheCommonScriptsAndOursExcludeEachOtherAndAgreeOnCounts(t *testing.T) {
	onBoth(t, func(r *rig) {
		take := func(holder string) any {
			return r.rdb.Eval(ctx, commonTake, []string{"orders"}, holder, 60_000).Val()
		}
		leave := func(holder string) string {
			v, err := r.rdb.Eval(ctx, commonLeave, []string{"orders"}, holder).Result()
			return fmt.Sprint(v, err)
		}
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{})

		lease := r.lock(owner)
		check.Equal[any](r, take("request-1"), int64(0), "the common scripts got in beside us")
		check.Equal(r, leave("request-1"), fmt.Sprint(nil, redis.Nil), "the release by another token returned")
		check.True(r, take(lease.Token()) == int64(1) && r.count("orders", lease.Token()) == 2, "the common scripts do not see our entry")
		check.Equal(r, leave(lease.Token()), fmt.Sprint(0, nil), "leaving one of two returned")
		r.must(lease.Unlock(ctx))

		for range 2 {
			check.Equal[any](r, take("request-1"), int64(1), "the common scripts do not find the lock free, or theirs")
		}
		check.Equal(r, r.heldBy(owner).Token, "request-1", "held by")
		a, b := leave("request-1"), leave("request-1")
		check.True(r, a == fmt.Sprint(0, nil) && b == fmt.Sprint(1, nil), "leaving twice returned %s and %s", a, b)
		lease = r.locked(owner)
		r.must(lease.Unlock(ctx))
	})
}

// reenterable are the kinds that their owner can enter again.
var reenterable = []string{"reentrant", "reader", "writer"}

func TestAnEntryDoesNotMakeALostHoldAnew(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, kind := range reenterable {
			diary := &eventRecorder{}
			owner := kinds[kind](r.client(lock.Config{Observe: diary.write}), kind, lock.Options{Fence: true})
			lost := r.lock(owner)
			r.must(r.rdb.Del(ctx, kind).Err()) // another client deletes the key
			lease := r.lock(owner)
			check.True(r, lease.Token() != lost.Token() && !lost.Valid() && (fenceOf(lease) > fenceOf(lost) || kind == "reader"),
				"%s: the old hold came back to life: valid %v, fence %d after %d", kind, lost.Valid(), fenceOf(lease), fenceOf(lost))
			check.ErrorIs(r, context.Cause(lost.Context()), lock.ErrLost, "%s: the old lease ended with", kind)
			check.Equal(r, diary.count(lock.Lost), 1, "%s: events of a loss", kind)
			if kind == "reentrant" {
				check.Equal(r, r.count(kind, lease.Token()), 1, "count after a new beginning")
			}
			r.must(lease.Unlock(ctx))
			check.Equal(r, r.rdb.Exists(ctx, kind).Val(), 0, "%s: the lock is still there", kind)
		}
	})
}

// The only lease is unlocked while another entry is in progress, and that entry fails.
func TestAnEntryThatFailsAsTheLastOneLeavesNothingBehind(t *testing.T) {
	inBubble(t, func(r *rig) {
		owner := r.client(lock.Config{}).Reentrant("orders", lock.Options{TTL: time.Hour})
		lease := r.lock(owner)
		r.link.FreezeReplies()
		entry := lockAsync(r.soon(2*time.Second), owner)
		time.Sleep(time.Millisecond) // in progress
		short := r.soon(time.Second)
		check.ErrorIs(r, lease.Unlock(short), context.DeadlineExceeded, "unlock")
		<-entry.done
		check.ErrorIs(r, entry.err, context.DeadlineExceeded, "the entry")
		r.link.Thaw()
		time.Sleep(time.Second)
		check.Equal(r, r.rdb.Exists(ctx, "orders").Val(), 0, "the lock still exists, but no client has it")
	})
}
