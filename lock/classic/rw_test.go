package classic_test

import (
	"testing"
	"time"

	"locktop/internal/check"
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
