package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// fixed returns options without renewal. A lease with them that is not unlocked stands
// for a holder that has crashed.
func fixed(ttl time.Duration) lock.Options {
	return lock.Options{TTL: ttl, Renew: lock.Renew{Off: true}}
}

// await is a call of Lock in progress.
type await struct {
	lease *lock.Lease
	err   error
	done  chan struct{}
}

// lockAsync calls Lock in a goroutine.
func lockAsync(ctx context.Context, l lock.Locker) *await {
	a := &await{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.lease, a.err = l.Lock(ctx)
	}()
	return a
}

// over reports whether the call has returned.
func (a *await) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// won waits for the lease.
func (r tester) won(a *await) *lock.Lease {
	r.Helper()
	<-a.done
	r.must(a.err)
	return a.lease
}

// passesOn releases a lease and checks how long after it a call of Lock has the lock. On a real
// server most has half a second more. Then the lock is free.
func (r tester) passesOn(lease *lock.Lease, next *await, most time.Duration, what ...any) {
	r.Helper()
	released := time.Now()
	r.must(lease.Unlock(ctx))
	lease = r.won(next)
	if took := time.Since(released); r.fake || tooLate(took, most+500*time.Millisecond) {
		check.AtMost(r, took, most, what...)
	}
	r.must(lease.Unlock(ctx))
}

// refused checks that a lock is held.
func (r tester) refused(l lock.Locker) {
	r.Helper()
	lease, err := l.TryLock(ctx)
	check.True(r, errors.Is(err, lock.ErrHeld), "got %v, %v, want ErrHeld", lease, err)
}

// field returns a field of the lock's hash; "" if it does not exist.
func (r *rig) field(key, field string) string {
	r.Helper()
	v, err := r.rdb.HGet(ctx, key, field).Result()
	check.Require(r, err == nil || err == redis.Nil, "%v", err)
	return v
}

// claimed waits until the server has a writer's claim.
func (r *rig) claimed(key string) {
	r.Helper()
	r.until("a writer to wait", func() bool { return r.field(key, "q") != "" })
}

// gone checks that no keys of a lock remain.
func (r *rig) gone(key string) {
	r.Helper()
	all := r.rdb.HGetAll(ctx, key).Val()
	check.True(r, len(all) == 0, "left behind: %v", all)
}

// Scenarios 24 and 36.
func TestAWriterEntersWhenTheLastReaderHasLeft(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		first := r.locked(c.RW("prices", lock.Options{}).Reader())
		second := r.locked(c.RW("prices", lock.Options{}).Reader())
		writer := lockAsync(ctx, c.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		r.must(first.Unlock(ctx))
		r.refused(c.RW("prices", lock.Options{}).Writer())
		check.Require(r, !writer.over() && r.field("prices", "w") == "", "the writer did not wait for the second reader")
		began := time.Now()
		r.must(second.Unlock(ctx))
		lease := r.won(writer)
		took := time.Since(began)
		check.True(r, !r.fake || took <= 0, "the writer entered %v after the last reader left", took)
		r.refused(c.RW("prices", lock.Options{}).Reader())
		r.refused(c.RW("prices", lock.Options{}).Writer())
		r.must(lease.Unlock(ctx))
		r.gone("prices")
	})
}

// Scenario 25, and re-entry: current readers are not refused. Promise P7.
func TestAWaitingWriterKeepsNewReadersOut(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		c, far := r.client(lock.Config{}), r.client(lock.Config{})
		inside := c.RW("prices", lock.Options{})
		first := r.locked(inside.Reader())
		writer := lockAsync(ctx, far.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		r.refused(c.RW("prices", lock.Options{}).Reader())
		r.refused(far.RW("prices", lock.Options{}).Reader())
		r.refused(c.RW("prices", lock.Options{}).Writer())
		late := lockAsync(ctx, c.RW("prices", lock.Options{}).Reader())
		r.until("another reader to wait", func() bool { return r.field("prices", "s") != "" })
		short := r.soon(10 * time.Second)
		again := check.Must(inside.Reader().Lock(short))(r)
		r.must(again.Unlock(ctx))
		check.Require(r, !writer.over() && !late.over(), "another client acquired the lock beside the first reader")
		r.must(first.Unlock(ctx))
		lease := r.won(writer)
		check.False(r, late.over(), "a reader that came later went first")
		r.must(lease.Unlock(ctx))
		r.must(r.won(late).Unlock(ctx))
		r.gone("prices")
	})
}

// Scenario 26: the process of the waiting writer dies.
func TestADeadWaitingWriterHoldsReadersOffForItsClaimOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.near()
		first := r.locked(near.RW("prices", lock.Options{}).Reader())
		doomed, kill := context.WithCancel(ctx)
		writer := lockAsync(doomed, r.client(lock.Config{}).RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		time.Sleep(10 * time.Second)
		r.refused(near.RW("prices", lock.Options{}).Reader()) // the claim is renewed
		r.link.Freeze()
		began := time.Now()
		second := r.lock(near.RW("prices", lock.Options{}).Reader())
		check.Between(r, time.Since(began), 500*time.Millisecond, 760*time.Millisecond, "a reader waited for a dead writer")
		kill()
		<-writer.done
		r.must(first.Unlock(ctx))
		r.must(second.Unlock(ctx))
	})
}

func TestAWriterThatGivesUpLetsReadersInAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, far := r.client(lock.Config{}), r.client(lock.Config{})
		first := r.locked(c.RW("prices", lock.Options{}).Reader())
		short := r.soon(5 * time.Second)
		began := time.Now()
		writer := lockAsync(short, far.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		second := r.lock(c.RW("prices", lock.Options{}).Reader())
		check.Equal(r, time.Since(began), 5*time.Second, "the reader entered after, the writer gave up after 5 s")
		<-writer.done
		check.True(r, errors.Is(writer.err, context.DeadlineExceeded) && errors.Is(writer.err, lock.ErrHeld), "the writer got %v", writer.err)
		r.must(first.Unlock(ctx))
		r.must(second.Unlock(ctx))
		r.gone("prices")
	})
}

// Scenario 27, with and without a crash of the first reader. Promise P7.
func TestAWriterWaitsForTheReaderWhoStaysLongest(t *testing.T) {
	for name, c := range map[string]struct {
		unlocks bool
		want    time.Duration
	}{"leaves": {true, 5 * time.Second}, "crashes": {false, 10 * time.Second}} {
		sub(t, name, inBubble, func(r *rig) {
			client := r.client(lock.Config{})
			began := time.Now()
			first := r.locked(client.RW("prices", fixed(10*time.Second)).Reader())
			second := r.locked(client.RW("prices", fixed(3*time.Second)).Reader())
			writer := lockAsync(ctx, client.RW("prices", lock.Options{}).Writer())
			time.Sleep(time.Second)
			r.must(second.Unlock(ctx))
			time.Sleep(4 * time.Second)
			check.Require(r, !writer.over(), "the writer did not wait for the first reader")
			if c.unlocks {
				r.must(first.Unlock(ctx))
			}
			lease := r.won(writer)
			check.Between(r, time.Since(began), c.want, c.want+10*time.Millisecond, "the writer entered after")
			r.must(lease.Unlock(ctx))
		})
	}
}

// Scenario 28. Promise P7.
func TestADeadReaderCostsAWriterItsOwnTTLHoweverManyOthersRenew(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, far := r.client(lock.Config{}), r.client(lock.Config{})
		began := time.Now()
		r.locked(far.RW("prices", fixed(2*time.Second)).Reader()) // the reader dies
		var live sync.WaitGroup
		for i := range 8 {
			live.Go(func() {
				for time.Since(began) < 3*time.Second {
					lease := r.lock(c.As(fmt.Sprint(i)).RW("prices", lock.Options{TTL: time.Second}).Reader())
					time.Sleep(time.Duration(100*(i+1)) * time.Millisecond)
					r.must(lease.Extend(ctx, 10*time.Second))
					time.Sleep(time.Duration(50*(i+1)) * time.Millisecond)
					r.must(lease.Unlock(ctx))
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		lease := r.lock(c.RW("prices", lock.Options{}).Writer())
		check.Between(r, time.Since(began), 2*time.Second, 2010*time.Millisecond, "the writer entered after, the dead reader's TTL was 2 s")
		r.must(lease.Unlock(ctx))
		live.Wait()
	})
}

// Scenario 29, for a writer that only tries.
func TestAReadersExpiryIsItsOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		r.locked(c.RW("prices", fixed(4*time.Second)).Reader())
		time.Sleep(3 * time.Second)
		r.must(r.locked(c.RW("prices", fixed(time.Minute)).Reader()).Unlock(ctx))
		r.refused(c.RW("prices", lock.Options{}).Writer())
		time.Sleep(2 * time.Second)
		r.must(r.locked(c.RW("prices", lock.Options{}).Writer()).Unlock(ctx))
		r.gone("prices")
	})
}

// Scenario 30.
func TestAWriterThatReadsOnKeepsOtherWritersOut(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		owner := c.RW("prices", lock.Options{})
		write := r.locked(owner.Writer())
		read := r.locked(owner.Reader())
		r.refused(c.RW("prices", lock.Options{}).Reader())
		r.must(write.Unlock(ctx))
		check.True(r, read.Valid(), "the read lease ended with the write lease")
		r.refused(c.RW("prices", lock.Options{}).Writer())
		other := r.locked(c.RW("prices", lock.Options{}).Reader())
		check.ErrorIs(r, tried(owner.Writer().TryLock(ctx)), lock.ErrArgument, "back to the write lock")
		r.must(read.Unlock(ctx))
		r.must(other.Unlock(ctx))
		r.gone("prices")
	})
}

// A waiting writer does not keep the owner of the write lock from reading.
func TestAWriterReadsWithinItsLockWhileAnotherWaits(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		owner := c.RW("prices", lock.Options{})
		write := r.locked(owner.Writer())
		waiting := lockAsync(ctx, c.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		short := r.soon(10 * time.Second)
		read := check.Must(owner.Reader().Lock(short))(r)
		again := check.Must(owner.Writer().Lock(short))(r)
		r.must(again.Unlock(ctx))
		r.must(write.Unlock(ctx))
		r.refused(c.RW("prices", lock.Options{}).Reader())
		r.must(read.Unlock(ctx))
		r.must(r.won(waiting).Unlock(ctx))
	})
}

// Scenario 31.
func TestAReaderCannotBecomeTheWriter(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		owners := []*rw{c.RW("prices", lock.Options{}), c.RW("prices", lock.Options{})}
		reads := []*lock.Lease{r.locked(owners[0].Reader()), r.locked(owners[1].Reader())}
		short := r.soon(10 * time.Second)
		for i, owner := range owners {
			began := time.Now()
			check.ErrorIs(r, tried(owner.Writer().Lock(short)), lock.ErrArgument)
			took := time.Since(began)
			check.True(r, !r.fake || took <= 0, "it took %v to say so", took)
			check.True(r, reads[i].Valid(), "the read lease ended")
		}
		check.Equal(r, r.field("prices", "q"), "", "a claim was left")
		for _, read := range reads {
			r.must(read.Unlock(ctx))
		}
		r.must(r.locked(owners[0].Writer()).Unlock(ctx))
	})
}

// Scenario 32.
func TestAReaderLeavesAsOftenAsItEntered(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		owner := c.RW("prices", lock.Options{})
		leases := []*lock.Lease{r.locked(owner.Reader()), r.locked(owner.Reader()), r.locked(owner.Reader())}
		writer := lockAsync(ctx, c.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		for left := 2; left > 0; left-- {
			r.must(leases[left].Unlock(ctx))
			got := r.field("prices", "r:"+leases[0].Token())
			check.True(r, strings.HasPrefix(got, fmt.Sprint(left, ":")), "the reader is stored as %q, want %d entries", got, left)
			r.refused(c.RW("prices", lock.Options{}).Writer())
		}
		check.Require(r, !writer.over(), "the writer did not wait for the last entry")
		r.must(leases[0].Unlock(ctx))
		lease := r.won(writer)
		if n := r.rdb.HLen(ctx, "prices").Val(); n != 2 { // the version, the writer
			r.Errorf("left beside the writer: %v", r.rdb.HGetAll(ctx, "prices").Val())
		}
		r.must(lease.Unlock(ctx))
		r.gone("prices")
	})
}

// Scenario 33.
func TestDeadReadersAreRemovedAHundredAtATime(t *testing.T) {
	onRedis(t, func(r *rig) {
		const dead = 10_000
		p := r.rdb.Pipeline()
		p.HSet(ctx, "prices", "v", "locktop-rw-1")
		for i := range dead {
			p.HSet(ctx, "prices", fmt.Sprint("r:crashed~", i), "1:1763683200000")
		}
		p.PExpire(ctx, "prices", time.Hour)
		check.Must(p.Exec(ctx))(r)

		reply, err := r.rdb.Eval(ctx, source(r, "waiters_common.lua", "waiters_acquire.lua", "tell.lua", "waiters_release.lua", "rw_common.lua", "rw_next.lua", "rw_write.lua"), []string{"prices"}, "w", "by hand", 10_000, 1, "", -1).Slice()
		r.must(err)
		check.Equal(r, fmt.Sprint(reply), "[ 0]", "an attempt that could not finish returned")
		left := r.rdb.HLen(ctx, "prices").Val()
		check.True(r, left == 1+dead-100, "%d of %d readers left after one attempt", left-1, dead)
		r.must(r.rdb.ConfigResetStat(ctx).Err())
		lease := r.locked(r.client(lock.Config{}).RW("prices", lock.Options{}).Writer())
		n := r.rdb.HLen(ctx, "prices").Val()
		check.True(r, n == 2, "%d fields beside the writer", n-2)
		for line := range strings.Lines(r.rdb.Info(ctx, "commandstats").Val()) {
			if strings.HasPrefix(line, "cmdstat_eval") {
				r.Log(strings.TrimSpace(line))
			}
		}
		r.must(lease.Unlock(ctx))
		r.gone("prices")
	})
}

// source returns the script that the package sends.
func source(r *rig, files ...string) string {
	r.Helper()
	var all strings.Builder
	for _, file := range files {
		text := check.Must(os.ReadFile(file))(r)
		all.Write(text)
	}
	return all.String()
}

// Readers also remove dead readers: without writers these must not accumulate.
func TestReadersRemoveDeadReaders(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.locked(c.RW("prices", lock.Options{}).Reader())
		for i := range 200 {
			r.must(r.rdb.HSet(ctx, "prices", fmt.Sprint("r:crashed~", i), "1:1763683200000").Err())
		}
		r.until("readers to remove the dead", func() bool {
			r.must(r.locked(c.RW("prices", lock.Options{}).Reader()).Unlock(ctx))
			return r.rdb.HLen(ctx, "prices").Val() == 2
		})
		r.must(lease.Extend(ctx, time.Second))
	})
}

// Scenario 34.
func TestARenewalProlongsOneReaderOnly(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		first := r.locked(c.RW("prices", fixed(10*time.Second)).Reader())
		second := r.locked(c.RW("prices", fixed(20*time.Second)).Reader())
		third := r.locked(c.RW("prices", fixed(time.Second)).Reader())
		ttl := r.rdb.PTTL(ctx, "prices").Val()
		check.True(r, ttl >= 19*time.Second, "the key ends after %v since a third reader came, before the second is over", ttl)
		r.must(third.Unlock(ctx))
		mine, others := r.field("prices", "r:"+first.Token()), r.field("prices", "r:"+second.Token())
		r.must(first.Extend(ctx, time.Minute))
		got := r.field("prices", "r:"+first.Token())
		check.True(r, got > mine, "from %q to %q by an extension", mine, got)
		check.Equal(r, r.field("prices", "r:"+second.Token()), others, "the other reader")
		check.AtLeast(r, r.rdb.PTTL(ctx, "prices").Val(), 59*time.Second, "the key must not end before its last reader: it ends after")
		r.must(first.Extend(ctx, time.Second)) // shorter: the key remains for the other
		check.AtLeast(r, r.rdb.PTTL(ctx, "prices").Val(), 19*time.Second, "the key must not end before its last reader: it ends after")
	})
}

// Scenario 35: one side is deleted by hand.
func TestBreakingOneSideLeavesTheOther(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		owner := c.RW("prices", lock.Options{})
		write, read := r.locked(owner.Writer()), r.locked(owner.Reader())
		r.must(r.rdb.HDel(ctx, "prices", "r:"+read.Token()).Err())
		check.ErrorIs(r, read.Extend(ctx, time.Minute), lock.ErrLost, "a broken read lock")
		r.must(write.Extend(ctx, time.Minute))

		read = r.locked(owner.Reader())
		r.must(r.rdb.HDel(ctx, "prices", "w").Err())
		check.ErrorIs(r, write.Unlock(ctx), lock.ErrLost, "a broken write lock")
		r.must(read.Extend(ctx, time.Minute))
		r.refused(c.RW("prices", lock.Options{}).Writer())
		r.must(r.locked(c.RW("prices", lock.Options{}).Reader()).Unlock(ctx))
		r.must(read.Unlock(ctx))
		r.gone("prices")
	})
}

func TestReadersOfOneProcessDoNotQueueForEachOther(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		r.must(r.locked(c.RW("prices", lock.Options{}).Reader()).Unlock(ctx)) // connected from now on
		r.link.FreezeReplies()
		var calls []*await
		for range 10 {
			calls = append(calls, lockAsync(ctx, c.RW("prices", lock.Options{TTL: time.Minute}).Reader()))
		}
		r.until("all to ask without an answer", func() bool { return r.rdb.HLen(ctx, "prices").Val() == 11 })
		r.link.Thaw()
		for _, call := range calls {
			r.must(r.won(call).Unlock(ctx))
		}
		r.gone("prices")
	})
}

// All readers that a writer has kept waiting get the lock before the next writer;
// later readers do not.
func TestWhenAWriterLeavesTheReadersItKeptGoInTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, far := r.client(lock.Config{}), r.client(lock.Config{})
		write := r.locked(c.RW("prices", lock.Options{}).Writer())
		next := lockAsync(ctx, far.RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		var kept []*await
		for i := range 30 {
			from := []*client{c, far, c.As(fmt.Sprint(i))}[i%3]
			kept = append(kept, lockAsync(ctx, from.RW("prices", lock.Options{}).Reader()))
		}
		time.Sleep(time.Second)
		began := time.Now()
		r.must(write.Unlock(ctx))
		var leases []*lock.Lease
		for _, call := range kept {
			leases = append(leases, r.won(call)) // all of them before the first leaves
		}
		took := time.Since(began)
		check.True(r, took <= 0 && !next.over(), "the readers were let in after %v, the next writer: %v", took, next.over())
		time.Sleep(time.Millisecond)
		r.refused(c.RW("prices", lock.Options{}).Reader())
		late := lockAsync(ctx, c.RW("prices", lock.Options{}).Reader())
		time.Sleep(10 * time.Second)
		for _, lease := range leases {
			check.Require(r, !late.over() && !next.over(), "another client acquired the lock beside the readers that were kept waiting")
			r.must(lease.Unlock(ctx))
		}
		lease := r.won(next)
		time.Sleep(time.Second)
		check.False(r, late.over(), "a reader is in beside the writer")
		r.must(lease.Unlock(ctx))
		r.must(r.won(late).Unlock(ctx))
		r.gone("prices")
	})
}

// The claim belongs to one process: no other process acquires the lock before it, or
// takes over the claim.
func TestAWriterThatIsNextIsNotOvertaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.near()
		read := r.locked(near.RW("prices", lock.Options{}).Reader())
		next := lockAsync(ctx, r.client(lock.Config{}).RW("prices", lock.Options{}).Writer())
		r.claimed("prices")
		time.Sleep(time.Second)
		r.link.Freeze() // its requests arrive late from now on
		short := r.soon(300 * time.Millisecond)
		fickle := lockAsync(short, near.RW("prices", lock.Options{}).Writer())
		<-fickle.done
		time.Sleep(time.Millisecond)
		check.True(r, r.field("prices", "q") != "", "a writer that gave up took another's claim along")
		r.must(read.Unlock(ctx))
		r.refused(near.RW("prices", lock.Options{}).Writer())
		r.refused(near.RW("prices", lock.Options{}).Reader())
		r.link.Thaw()
		r.must(r.won(next).Unlock(ctx))
		r.must(r.locked(near.RW("prices", lock.Options{}).Writer()).Unlock(ctx))
	})
}

func TestPollingWritersAreNotStarvedEither(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		read := r.locked(c.RW("prices", lock.Options{}).Reader())
		writer := lockAsync(ctx, c.RW("prices", lock.Options{Wait: lock.Wait{Poll: 5 * time.Second}}).Writer())
		r.claimed("prices")
		time.Sleep(9 * time.Second)
		r.refused(c.RW("prices", lock.Options{}).Reader())
		r.must(read.Unlock(ctx))
		r.must(r.won(writer).Unlock(ctx))
		r.gone("prices")
	})
}

// A reader that was refused just before a writer left goes before the next writer, also
// if its process has refused none for longer than a millisecond.
func TestAReaderThatWasRefusedJustBeforeGoesFirst(t *testing.T) {
	inBubble(t, func(r *rig) {
		near := r.client(lock.Config{})
		for _, before := range []time.Duration{0, 10 * time.Microsecond, 300 * time.Microsecond, 999 * time.Microsecond, 2 * time.Millisecond} {
			for _, late := range []int{0, 3} {
				write := r.locked(near.RW("prices", lock.Options{}).Writer())
				c, _ := r.process("next")
				next := lockAsync(ctx, c.RW("prices", lock.Options{}).Writer())
				r.claimed("prices")
				readers, _ := r.process("readers")
				reading := []*await{lockAsync(ctx, readers.RW("prices", lock.Options{}).Reader())}
				synctest.Wait()
				for range late { // these have not asked when the writer leaves
					reading = append(reading, lockAsync(ctx, readers.RW("prices", lock.Options{}).Reader()))
				}
				synctest.Wait()
				time.Sleep(before)
				released := time.Now()
				r.must(write.Unlock(ctx))
				for _, reader := range reading {
					synctest.Wait()
					check.Require(r, reader.over(), "refused %v before, %d behind it: a reader still waits", before, late)
				}
				check.AtMost(r, time.Since(released), 0, "refused %v before, %d behind it: the readers got in after", before, late)
				for _, reader := range reading {
					r.must(r.won(reader).Unlock(ctx))
				}
				r.must(r.won(next).Unlock(ctx))
			}
		}
	})
}

// Readers that died while they waited cost the next writer 0.1 s, and readers that gave up
// nothing. Readers that still wait go first.
func TestReadersWhoNeverComeAreNotWaitedForLong(t *testing.T) {
	for name, cost := range map[string]time.Duration{"dead": 100 * time.Millisecond, "gave up": 0, "one gave up": time.Second} {
		sub(t, name, inBubble, func(r *rig) {
			near := r.near()
			write := r.locked(near.RW("prices", lock.Options{}).Writer())
			doomed, kill := context.WithCancel(ctx)
			defer kill()
			if name == "one gave up" {
				patient, _ := r.process("patient")
				reader := lockAsync(ctx, patient.RW("prices", lock.Options{}).Reader())
				time.Sleep(time.Millisecond)
				time.AfterFunc(3*time.Second, func() { r.must(r.won(reader).Unlock(ctx)) })
			}
			reader := lockAsync(doomed, r.client(lock.Config{}).RW("prices", lock.Options{}).Reader())
			r.until("the reader to wait", func() bool { return r.field("prices", "s") != "" })
			next := lockAsync(ctx, near.RW("prices", lock.Options{}).Writer())
			time.Sleep(time.Second)
			if name == "dead" {
				r.link.Freeze()
			} else {
				kill()
			}
			time.Sleep(time.Second)
			began := time.Now()
			r.must(write.Unlock(ctx))
			lease := r.won(next)
			check.Between(r, time.Since(began), cost, cost+10*time.Millisecond, "the next writer entered after")
			kill()
			<-reader.done
			r.must(lease.Unlock(ctx))
		})
	}
}

// A writer that has crashed has left, too: the readers that it kept waiting go first,
// whether they or the next writer find out.
func TestADeadWriterIsSucceededByTheReadersItKept(t *testing.T) {
	for name, finder := range map[string]string{"found by the next writer": "writer", "found by a reader": "reader"} {
		sub(t, name, inBubble, func(r *rig) {
			near := r.near()
			began := time.Now()
			r.locked(near.RW("prices", fixed(2*time.Second)).Writer()) // the writer dies
			clients := map[string]*client{"writer": r.client(lock.Config{}), "reader": r.client(lock.Config{})}
			clients[finder] = near // the other finds out later
			next := lockAsync(ctx, clients["writer"].RW("prices", lock.Options{}).Writer())
			reader := lockAsync(ctx, clients["reader"].RW("prices", lock.Options{}).Reader())
			time.Sleep(1500 * time.Millisecond)
			r.link.Freeze()
			time.Sleep(510 * time.Millisecond)
			r.link.Thaw()
			read := r.won(reader)
			if took := time.Since(began); took < 2*time.Second || took > 2020*time.Millisecond || next.over() {
				r.Errorf("the reader entered after %v, the next writer before it: %v; the dead one's TTL was 2 s", took, next.over())
			}
			r.must(read.Unlock(ctx))
			r.must(r.won(next).Unlock(ctx))
			r.gone("prices")
		})
	}
}

// Scenario 108, for both sides.
func TestAReadersFenceIsThatOfTheLastWriter(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		rw := c.RW("prices", lock.Options{Fence: true})
		for want := range int64(3) {
			read := r.locked(rw.Reader())
			check.Equal(r, fenceOf(read), want, "a reader's fence")
			r.must(read.Unlock(ctx))
			write := r.locked(rw.Writer())
			again := r.locked(rw.Writer())
			check.True(r, fenceOf(write) == want+1 && fenceOf(again) == want+1,
				"the writer's fences are %d and %d, want %d", fenceOf(write), fenceOf(again), want+1)
			r.must(again.Unlock(ctx))
			r.must(write.Unlock(ctx))
		}
	})
}
