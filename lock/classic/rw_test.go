package classic_test

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
	"locktop/lock/classic"
)

// rwKind is one kind of read/write lock.
type rwKind struct {
	name           string
	reader, writer func(r *rig) classic.Lock
}

// classicRWKinds returns the forms with readers.
func classicRWKinds() []rwKind {
	var kinds []rwKind
	for _, f := range classic.Forms() {
		if f.NewReader == nil {
			continue
		}
		o := classic.Options{TTL: time.Minute}
		kinds = append(kinds, rwKind{f.Name,
			func(r *rig) classic.Lock { return f.NewReader(r.rdb, "orders", o) },
			func(r *rig) classic.Lock { return f.New(r.rdb, "orders", o) },
		})
	}
	return kinds
}

// soundRW is the RW of package lock.
func soundRW() rwKind {
	o := lock.Options{TTL: time.Minute, Renew: lock.Renew{Off: true}}
	return rwKind{"RW",
		func(r *rig) classic.Lock { return r.side(false, o) },
		func(r *rig) classic.Lock { return r.side(true, o) },
	}
}

// side returns a side of a new owner of the read/write lock of package lock.
func (r *rig) side(writes bool, o lock.Options) classic.Lock {
	reader, writer, err := r.client().RW("orders", o)
	r.must(err)
	if writes {
		return sound{writer}
	}
	return sound{reader}
}

// eachRW runs f for the historic forms and the sound one, under a fake clock and
// on a redis-server.
func eachRW(t *testing.T, f func(*rig, rwKind)) {
	t.Helper()
	for _, k := range append(classicRWKinds(), soundRW()) {
		t.Run(k.name, func(t *testing.T) {
			onBoth(t, func(r *rig) { f(r, k) })
		})
	}
}

func TestReadersShareTheLockAndExcludeAWriter(t *testing.T) {
	eachRW(t, func(r *rig, k rwKind) {
		reader, writer := k.reader(r), k.writer(r)
		writing := r.take(writer)
		check.True(r, r.try(reader) == nil, "a reader got in beside a writer")
		check.True(r, r.try(k.writer(r)) == nil, "a writer got in beside a writer")
		r.must(writing.Unlock(ctx))
		reading := r.take(reader)
		check.True(r, r.try(writer) == nil, "a writer got in beside a reader")
		r.must(reading.Unlock(ctx))
		check.Equal(r, r.rdb.DBSize(ctx).Val(), 0, "keys left behind")
		r.take(reader)
		r.take(k.reader(r))
	})
}

func TestAReaderThatLeavesLetsAWriterInBesideAnother(t *testing.T) {
	eachRW(t, func(r *rig, k rwKind) {
		staying := r.take(k.reader(r))
		leaving := r.take(k.reader(r))
		r.must(leaving.Unlock(ctx))
		beside := r.try(k.writer(r)) != nil
		check.Require(r, time.Now().Before(staying.Deadline()), "the other reader's time is up")
		check.Equal(r, beside, k.name != "RW", "a writer got in")
	})
}

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

func TestAReaderSetsTheTimeOfAllReaders(t *testing.T) {
	inBubble(t, func(r *rig) {
		long := r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Minute}).Reader())
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Second}).Reader())
		time.Sleep(1100 * time.Millisecond)
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{}).Writer())
		check.True(r, time.Now().Before(long.Deadline()), "the first reader's time is up")
	})
}

func TestNoClusterRunsTwoKeyRWUnlessItsNameHasATag(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	t.Parallel()
	node := servertest.ClusterForTest(t, servertest.ClusterOptions{Masters: 1})
	r := newRig(t, node.Addrs()[0], tcp)

	o := classic.Options{}
	for name, l := range map[string]classic.Lock{
		"reader": classic.NewTwoKeyRW(r.rdb, "orders", o).Reader(),
		"writer": classic.NewTwoKeyRW(r.rdb, "orders", o).Writer(),
	} {
		_, err := l.TryLock(ctx)
		check.True(t, err != nil && strings.Contains(err.Error(), "CROSSSLOT"), "%s: got %v, want CROSSSLOT", name, err)
	}
	r.take(classic.NewTwoKeyRW(r.rdb, "{orders}", o).Reader())
	r.take(classic.NewStampRW(r.rdb, "orders", o).Reader())
}
