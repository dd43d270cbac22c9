package classic_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lock/classic"
)

func TestEveryFormIsListed(t *testing.T) {
	var want []string
	for _, f := range check.Must(filepath.Glob("*.go"))(t) {
		for _, made := range regexp.MustCompile(`(?m)^func New(\w+)\(`).FindAllStringSubmatch(string(check.Must(os.ReadFile(f))(t)), -1) {
			want = append(want, strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(made[1], "$1-$2")))
		}
	}
	slices.Sort(want)
	var listed []string
	for _, f := range classic.Forms() {
		listed = append(listed, f.Name)
	}
	slices.Sort(listed)
	check.DeepEqual(t, listed, want, "the listed forms")
}

func TestAFormExcludesUntilItIsUnlocked(t *testing.T) {
	each(t, classicKinds(), func(r *rig, k kind) {
		a, b := k.open(r, time.Minute), k.open(r, time.Minute)
		for range 2 {
			mine := r.take(a)
			check.Require(r, r.try(b) == nil, "two hold the lock")
			r.must(mine.Unlock(ctx))
			n := r.rdb.DBSize(ctx).Val()
			check.Require(r, n == 0, "%d keys left behind", n)
			a, b = b, a
		}
	})
}

func TestAFormIsFreeOnceItsTimeIsUpAndNotBefore(t *testing.T) {
	t.Parallel()
	each(t, classicKinds(), func(r *rig, k kind) {
		first := r.take(k.open(r, 50*time.Millisecond))
		r.await(k.open(r, 50*time.Millisecond))
		const cut = time.Millisecond // the resolution of Redis
		now := time.Now()
		check.False(r, now.Before(first.Deadline().Add(-cut)), "taken over %v before the first hold's deadline", first.Deadline().Sub(now))
	})
}

func TestATTLThatCannotWorkIsTheDefault(t *testing.T) {
	for _, ttl := range []time.Duration{0, 1, time.Millisecond - 1, -1, -time.Second} {
		each(t, classicKinds(), func(r *rig, k kind) {
			earliest := time.Now().Add(10*time.Second - time.Millisecond) // stamps are truncated
			h := r.take(k.open(r, ttl))
			latest := time.Now().Add(10 * time.Second)
			check.True(r, !h.Deadline().Before(earliest) && !h.Deadline().After(latest),
				"TTL %d: held until %v, want %v to %v", ttl, h.Deadline(), earliest, latest)
		})
	}
}

// A late unlock must leave the lock of the next owner alone. These forms do not.
func TestWhoIsLateDeletesTheNextOwnersLock(t *testing.T) {
	t.Parallel()
	deletes := []string{"setnx-expire", "exists-set", "getset", "blind-delete", "two-key-rw"}
	kinds := slices.Concat(classicKinds(), soundKinds())
	// A client compares a stamp with its own TTL, so this form has its own test:
	// TestALateWriterLeavesTheNextOnesStampAlone.
	kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k.name == "stamp-rw" })
	each(t, kinds, func(r *rig, k kind) {
		late := r.take(k.open(r, 50*time.Millisecond))
		r.await(k.open(r, time.Minute))
		lost := r.lost(late.Unlock(ctx))
		beside := r.try(k.open(r, time.Minute)) != nil
		if want := slices.Contains(deletes, k.name); beside != want || lost == want {
			r.Errorf("a third got in: %v, and the first was told that its lock was lost: %v; want %v, %v", beside, lost, want, !want)
		}
	})
}

func TestAnOperationThatDiesSendsNothingMore(t *testing.T) {
	take := func(l classic.Lock) error {
		_, err := l.TryLock(ctx)
		return err
	}
	release := func(l classic.Lock) error {
		h, err := l.TryLock(ctx)
		if err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
	for _, c := range []struct {
		form  string
		step  classic.Step
		stamp time.Time // of an existing Getset lock
		do    func(classic.Lock) error
		sent  string
	}{
		{"setnx-expire", classic.BeforeExpire, time.Time{}, take, "setnx"},
		{"exists-set", classic.BeforeSet, time.Time{}, take, "exists"},
		{"getset", classic.BeforeGet, noon, take, "setnx"},
		{"getset", classic.BeforeGetset, noon, take, "setnx get"},
		{"get-then-del", classic.BeforeDel, time.Time{}, release, "set get"},
	} {
		t.Run(c.form+" before "+string(c.step), func(t *testing.T) {
			onBoth(t, func(r *rig) {
				if !c.stamp.IsZero() {
					r.must(r.rdb.Set(ctx, "orders", c.stamp.UnixMilli(), 0).Err())
				}
				tape := r.record()
				i := slices.IndexFunc(classic.Forms(), func(f classic.Form) bool { return f.Name == c.form })
				hooks := dyingBefore(c.step)
				hooks.Now = at(noon.Add(time.Millisecond)).Now
				err := c.do(classic.Forms()[i].New(r.rdb, "orders", classic.Options{Hooks: hooks}))
				check.ErrorIs(r, err, errKilled)
				check.Equal(r, tape.String(), c.sent)
			})
		})
	}
}

// tape records the names of the commands that a client sends.
type tape struct {
	mu    sync.Mutex
	names []string
}

// record records the commands of r.rdb from now on.
func (r *rig) record() *tape {
	r.must(r.rdb.Ping(ctx).Err()) // the handshake has ended
	t := &tape{}
	r.rdb.AddHook(servertest.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		t.mu.Lock()
		t.names = append(t.names, cmd.Name())
		t.mu.Unlock()
		return next(ctx, cmd)
	}))
	return t
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.names, " ")
}

// [TestWhoIsLateDeletesTheNextOwnersLock] has the case without the pause.
func TestWhatTimeRunsOutUnderIsDeleted(t *testing.T) {
	onBoth(t, func(r *rig) {
		open := func(h classic.Hooks) classic.Lock {
			return classic.NewGetThenDel(r.rdb, "orders", classic.Options{TTL: time.Minute, Hooks: h})
		}
		slow := r.take(open(before(classic.BeforeDel, func() error {
			r.outlast("orders")
			r.take(open(classic.Hooks{}))
			return nil
		})))
		check.False(r, r.lost(slow.Unlock(ctx)), "the slow one was told")
		check.True(r, r.try(open(classic.Hooks{})) != nil, "the next owner still holds the lock")
	})
}

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
