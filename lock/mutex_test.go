package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock"
)

var ctx = context.Background()

// Scenario 1.
func TestALockedKeyHoldsTheTokenForTheTTL(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		began := time.Now()
		lease := r.locked(r.client(lock.Config{Owner: "billing-7"}).Mutex("orders", lock.Options{TTL: 5 * time.Second}))
		r.holds("orders", lease.Token())
		label, id, _ := strings.Cut(lease.Token(), "~")
		check.True(r, label == "billing-7" && len(id) == 36, "token %q is not the owner's label and a uuid", lease.Token())
		r.lives("orders", 5*time.Second, began)
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 1, "keys")
		check.True(r, lease.Valid() && lease.Context().Err() == nil && fenceOf(lease) == 0,
			"a fresh lease is not valid, or has the fence %d", fenceOf(lease))
	})
}

// Scenarios 3 and 87: the lease distinguishes a release from a loss.
func TestAnUnlockedKeyIsGoneAndFree(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease := r.lock(c.Mutex("orders", lock.Options{}))
		r.must(lease.Unlock(ctx))
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 0, "keys left behind")
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrClosed, "the lease's context ended with")
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrClosed, "second unlock")
		got := c.Stats().Events // needs no Observe
		check.True(r, got[lock.Acquired] == 1 && got[lock.Released] == 1, "acquired %d, released %d, want 1 and 1", got[lock.Acquired], got[lock.Released])
		r.must(r.locked(c.As("b").Mutex("orders", lock.Options{})).Unlock(ctx))
	})
}

// Scenario 4.
func TestUnlockLeavesAStrangersLockAlone(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		r.must(r.rdb.Set(ctx, "orders", "stranger", time.Minute).Err())
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost, "unlock ended with")
		r.holds("orders", "stranger")
	})
}

// Scenario 5.
func TestUnlockAfterExpiryLeavesTheNextHolderAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, b := r.client(lock.Config{Owner: "a"}), r.client(lock.Config{Owner: "b"})
		mine := r.lock(a.Mutex("orders", lock.Options{TTL: time.Second, Renew: lock.Renew{Off: true}}))
		time.Sleep(2 * time.Second)
		theirs := r.locked(b.Mutex("orders", lock.Options{}))
		for range 2 {
			check.ErrorIs(r, mine.Unlock(ctx), lock.ErrLost, "unlock ended with")
		}
		r.holds("orders", theirs.Token())
	})
}

// Scenario 8.
func TestOneOfManyAttemptsAtOnceSucceeds(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		var won atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, lock.ErrHeld) {
					r.Error(err)
				}
			})
		}
		all.Wait()
		check.Equal(r, won.Load(), 1, "winners of 100")
	})
}

// Scenario 10.
func TestOptionsThatCannotWorkAreRefusedUnsent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.link.Refuse(errors.New("nothing must be sent"))
		c, long := r.client(lock.Config{}), strings.Repeat("x", 101)
		for _, o := range []lock.Options{
			{TTL: -time.Second},
			{TTL: 1},
			{TTL: time.Millisecond},
			{TTL: time.Second + time.Microsecond},
			{TTL: 1 << 62},
			{TTL: time.Second, Renew: lock.Renew{Every: time.Second}},
			{TTL: time.Second, Renew: lock.Renew{Every: -1}},
			{TTL: time.Second, Renew: lock.Renew{Max: -1}},
			{TTL: time.Second, Renew: lock.Renew{MaxHold: -1}},
			{Renew: lock.Renew{Every: 1}},
			{Renew: lock.Renew{Every: time.Hour}},
			{Wait: lock.Wait{Jitter: 2}},
			{Replicas: -1},
			{ReplicaTimeout: time.Second},
			{Replicas: 1, ReplicaTimeout: -time.Second},
			{Replicas: 1, ReplicaTimeout: time.Microsecond},
			{Replicas: 1, TTL: time.Second, ReplicaTimeout: time.Second},
			{Delay: -time.Millisecond},
			{Delay: 1500 * time.Microsecond},
			{Delay: 366 * 24 * time.Hour},
		} {
			check.ErrorIs(r, tried(c.Client.Mutex("orders", o)), lock.ErrArgument, "%+v", o)
		}
		for _, o := range []lock.Options{{}, {Delay: time.Millisecond}, {Delay: 365 * 24 * time.Hour}} {
			check.Must(c.Client.Mutex("orders", o))(r)
		}
		check.ErrorIs(r, tried(c.Client.As(long).Mutex("orders", lock.Options{})), lock.ErrArgument, "a label of 101 bytes")
		check.ErrorIs(r, tried(lock.New(r.via, lock.Config{Owner: long})), lock.ErrArgument, "a label of 101 bytes")
	})
}

// Scenarios 11 and 13: names that differ are different locks.
func TestAnyBytesAreAName(t *testing.T) {
	onBoth(t, func(r *rig) {
		c, leases := r.client(lock.Config{}), map[string]*lock.Lease{}
		for _, key := range []string{"", "a", "A", "a:", "a:b", "a\x00b", "a\nb", "\xff\xfe", "{tag}:x", "}{", strings.Repeat("k", 10<<10)} {
			leases[key] = r.locked(c.Mutex(key, lock.Options{}))
		}
		for key, lease := range leases {
			r.holds(key, lease.Token())
			r.must(lease.Unlock(ctx))
		}
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 0, "keys left behind")
	})
}

func TestExtendSetsTheTimeLeft(t *testing.T) {
	onBoth(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Off: true}}))
		for _, ttl := range []time.Duration{time.Minute, 2 * time.Second} {
			began := time.Now()
			r.must(lease.Extend(ctx, ttl))
			r.lives("orders", ttl, began)
			if validity := lease.Deadline().Sub(began); validity < ttl-drift(ttl) || time.Until(lease.Deadline()) > ttl {
				r.Errorf("extended to %v, the deadline is %v after the begin", ttl, validity)
			}
		}
		check.ErrorIs(r, lease.Extend(ctx, 0), lock.ErrArgument, "extending by nothing")
	})
}

// A cycle without a waiter is SET, then EVALSHA with GET, ZPOPMIN, PUBLISH and DEL.
func TestOneRoundTripEach(t *testing.T) {
	onRedis(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		warm := r.lock(m) // the scripts are loaded from now on
		r.must(warm.Unlock(ctx))
		r.must(r.rdb.ConfigResetStat(ctx).Err())
		r.must(pass(m))
		r.executed(map[string]int{"evalsha": 1, "eval": 1, "set": 1, "get": 1, "del": 1, "subscribe": 0})
		before := r.commands()
		for range 10 {
			r.must(r.locked(m).Unlock(ctx))
		}
		check.Equal(r, r.commands()-before-1, 60, "commands of 10 cycles") // without INFO
	})
}

// Scenarios 2 and 22: a mutex is not reentrant, and reports it at once.
func TestOnlyARefusalTakesASecondRoundTrip(t *testing.T) {
	onRedis(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		lease := r.locked(m)
		r.must(r.rdb.ConfigResetStat(ctx).Err())
		held := r.heldBy(m)
		check.True(r, held.Token == lease.Token() && held.TTL > 0 && lease.Valid(), "got %v, want the holder, whose hold goes on", held)
		r.executed(map[string]int{"set": 2, "evalsha": 1, "get": 1, "pttl": 1})
	})
}

// executed checks how often the server has executed commands whose names begin so, also in scripts.
func (r *rig) executed(want map[string]int) {
	r.Helper()
	for command, n := range want {
		check.Equal(r, r.calls(command), n, "%s", command)
	}
}

// Scenario 61.
func TestAScriptFlushInMidRunIsNotNoticed(t *testing.T) {
	onRedis(t, func(r *rig) {
		diary := &eventRecorder{}
		c := r.client(lock.Config{Observe: diary.write})
		for kind, l := range everyKind(c, "orders", lock.Options{Renew: lock.Renew{Every: 20 * time.Millisecond}}) {
			for i := range 3 {
				r.must(r.rdb.ScriptFlush(ctx).Err())
				lease := r.locked(l)
				r.must(r.rdb.ScriptFlush(ctx).Err())
				r.renewed(diary, 1)
				if s, is := l.(*lock.Semaphore); is {
					r.must(s.SetLimit(ctx, i+1))
				}
				r.must(r.rdb.ScriptFlush(ctx).Err())
				r.must(lease.Unlock(ctx))
			}
			r.rdb.Del(ctx, "{orders-semaphore}:limit")
			check.Equal(r, r.keys(), 0, "%s: keys left", kind)
		}
	})
}

// Scenario 86.
func TestCloseReleasesAndTurnsWaitersAway(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := r.client(lock.Config{})
		leases := map[string]*lock.Lease{}
		for kind, l := range everyKind(c, "mine", lock.Options{}) {
			leases[kind] = r.locked(l)
		}
		r.must(r.rdb.Set(ctx, "theirs", "stranger", time.Minute).Err())
		var waiters []*await
		for i := range 10 {
			waiters = append(waiters, lockAsync(ctx, c.As("waiter").Mutex("theirs", lock.Options{})))
			if i%2 == 0 {
				waiters = append(waiters, lockAsync(ctx, c.All([]string{"other", "theirs"}, lock.Options{})))
			}
		}
		r.must(c.Close())
		for _, w := range waiters {
			<-w.done
			check.ErrorIs(r, w.err, lock.ErrClosed, "a waiter")
		}
		for kind, lease := range leases {
			check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrClosed, "%s: the lease ended with", kind)
			check.ErrorIs(r, tried(kinds[kind](c, "mine", lock.Options{}).Lock(ctx)), lock.ErrClosed, "%s: locking after Close", kind)
		}
		r.holds("mine-mutex", "")
		r.holds("theirs", "stranger")
		r.must(r.rdb.Del(ctx, "theirs", "{theirs}:waiters").Err())
		r.until("the end of all keys", func() bool { return r.keys() == 0 })
	})
}

// Scenario 87: a release is not reported as a loss.
func TestEventsTellTheStoryOfALease(t *testing.T) {
	inBubble(t, func(r *rig) {
		diary := &eventRecorder{}
		c := r.client(lock.Config{Owner: "a", Observe: diary.write})
		m := c.Mutex("orders", lock.Options{TTL: 3 * time.Second})
		lease := r.lock(m)
		_, err := c.As("b").Mutex("orders", lock.Options{}).TryLock(ctx)
		check.Require(r, errors.Is(err, lock.ErrHeld), "%v", err)
		time.Sleep(1500 * time.Millisecond)
		r.must(lease.Unlock(ctx))
		lease = r.lock(c.Mutex("orders", lock.Options{TTL: time.Second, Renew: lock.Renew{Off: true}}))
		<-lease.Context().Done()
		synctest.Wait() // events come from another goroutine
		got, want := diary.story(), "[acquired contended renewed released acquired expired]"
		check.True(r, got == want, "the story is %s, want %s", got, want)
		for _, e := range diary.events {
			check.True(r, e.Kind != lock.Released || e.Elapsed >= time.Second, "released after %v, want 1.5 s", e.Elapsed)
		}
	})
}

// knowsIfEqual reports whether the server executes SET with IFEQ.
func (r *rig) knowsIfEqual() bool {
	r.Helper()
	err := r.rdb.Do(ctx, "set", "missing", "value", "ifeq", "value", "px", 1000).Err()
	check.Require(r, errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "syntax error"), "SET with IFEQ: %v", err)
	return errors.Is(err, redis.Nil)
}

func TestAnExtensionUsesIFEQIfTheServerKnowsIt(t *testing.T) {
	onRedis(t, func(r *rig) {
		known := r.knowsIfEqual()
		version := r.rdb.InfoMap(ctx, "server").Item("Server", "valkey_version")
		check.True(r, known || !strings.HasPrefix(version, "8.1."), "Valkey %s does not know IFEQ", version)
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: time.Minute}))
		r.must(r.rdb.ConfigResetStat(ctx).Err())
		for range 5 {
			r.must(lease.Extend(ctx, 2*time.Minute))
			check.AtLeast(r, r.rdb.PTTL(ctx, "orders").Val(), 119*time.Second, "PTTL after an extension by 2 min")
		}
		scripts := r.calls("eval")
		if sets := r.calls("set"); known && (sets != 5 || scripts != 0) || !known && (sets != 1 || scripts < 5) {
			r.Errorf("5 extensions were %d SET and %d scripts; IFEQ known: %v", sets, scripts, known)
		}
		r.must(lease.Unlock(ctx))
	})
}

// withAndWithoutIFEQ runs f on a redis-server and on an embedded server that does not know
// IFEQ and one that does.
func withAndWithoutIFEQ(t *testing.T, f func(*rig)) {
	onBoth(t, f)
	sub(t, "IFEQ", inBubble, func(r *rig) {
		servertest.KnowIfEqual(r.embedded)
		check.Require(r, r.knowsIfEqual(), "the server does not know IFEQ")
		f(r)
	})
}

// Scenario 56: a late renewal must not create the key.
func TestAnExtensionChangesNoKeyOfAnother(t *testing.T) {
	for _, other := range []string{"", "stranger"} {
		withAndWithoutIFEQ(t, func(r *rig) {
			c := r.client(lock.Config{})
			for _, key := range []string{"first", "second"} { // the first extension asks for IFEQ
				lease := r.lock(c.Mutex(key, lock.Options{TTL: time.Minute}))
				r.must(lease.Extend(ctx, 2*time.Minute))
				r.must(r.rdb.Del(ctx, key).Err())
				if other != "" {
					r.must(r.rdb.Set(ctx, key, other, 10*time.Second).Err())
				}
				check.ErrorIs(r, lease.Extend(ctx, time.Minute), lock.ErrLost, "%s", key)
				check.False(r, lease.Valid(), "%s: the lease goes on", key)
				check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "%s: the lease ended with", key)
				r.holds(key, other)
				check.AtMost(r, r.rdb.PTTL(ctx, key).Val(), 10*time.Second, "%s: PTTL", key)
			}
		})
	}
}

func TestLocksAreWhereTheClientPointsTo(t *testing.T) {
	child := servertest.RedisForTest(t, "--requirepass", "secret")
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), Password: "secret", DB: 5})
	t.Cleanup(func() { rdb.Close() })
	c := check.Must(lock.New(rdb, lock.Config{}))(t)
	t.Cleanup(func() { c.Close() })
	lease := check.Must(check.Must(c.Mutex("orders", lock.Options{}))(t).TryLock(ctx))(t)
	check.Equal(t, rdb.Get(ctx, "orders").Val(), lease.Token(), "database 5 holds")
}

func TestAUserWhoMayNotPingCanLock(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.user("~*", "+@all", "-ping")
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		r.must(r.locked(c.Mutex("orders", lock.Options{})).Unlock(ctx))
	})
}

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

// Scenario 108. Promise P6.
func TestFencesRiseOverReleasesExpiriesAndRemovals(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		c := r.client(lock.Config{})
		m := c.Mutex("orders", lock.Options{Fence: true})
		var last int64
		for i := range 30 {
			lease := r.lock(m)
			check.Require(r, fenceOf(lease) > last, "round %d: fence %d after %d", i, fenceOf(lease), last)
			last = fenceOf(lease)
			switch i % 3 {
			case 0:
				r.must(lease.Unlock(ctx))
			case 1:
				r.must(r.rdb.PExpire(ctx, "orders", time.Millisecond).Err()) // expires
				r.until("the end of the key", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
			case 2:
				r.must(r.rdb.Del(ctx, "orders").Err()) // another client deletes the key
			}
		}
		check.Equal(r, r.rdb.Get(ctx, "{orders}:fence").Val(), "30", "the counter after 30 holds")
	})
}
