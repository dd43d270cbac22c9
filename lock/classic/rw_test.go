package classic_test

import (
	"testing"
	"time"

	"locktop/lock/classic"
)

// rwKind is one way to lock for reading and writing.
type rwKind struct {
	name           string
	reader, writer func(r *rig) classic.Lock
}

// classicRWKinds returns the forms that tell readers from writers.
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

// eachRW runs f for every kind, under a fake clock and on a redis-server.
func eachRW(t *testing.T, kinds []rwKind, f func(*rig, rwKind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			onBoth(t, func(r *rig) { f(r, k) })
		})
	}
}

func TestReadersShareTheLockAndExcludeAWriter(t *testing.T) {
	eachRW(t, classicRWKinds(), func(r *rig, k rwKind) {
		reader, writer := k.reader(r), k.writer(r)
		reading := r.take(reader)
		if r.try(writer) != nil {
			r.Error("a writer got in beside a reader")
		}
		r.must(reading.Unlock(ctx))
		r.take(reader)
		last := r.take(k.reader(r))
		r.must(last.Unlock(ctx))
		writing := r.take(writer)
		if r.try(reader) != nil {
			r.Error("a reader got in beside a writer")
		}
		if r.try(k.writer(r)) != nil {
			r.Error("a writer got in beside a writer")
		}
		r.must(writing.Unlock(ctx))
		if n := r.rdb.DBSize(ctx).Val(); n != 0 {
			r.Errorf("%d keys left behind", n)
		}
	})
}

func TestAReaderThatLeavesLetsAWriterInBesideAnother(t *testing.T) {
	eachRW(t, classicRWKinds(), func(r *rig, k rwKind) {
		staying := r.take(k.reader(r))
		leaving := r.take(k.reader(r))
		r.must(leaving.Unlock(ctx))
		r.take(k.writer(r))
		if !time.Now().Before(staying.Deadline()) {
			r.Error("the other reader's time is up")
		}
	})
}
