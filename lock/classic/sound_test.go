package classic_test

import (
	"context"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
	"locktop/lock/classic"
)

// sound adapts a kind of package lock to the interface of the forms.
type sound struct{ lock.Locker }

func (s sound) TryLock(ctx context.Context) (classic.Hold, error) {
	lease, err := s.Locker.TryLock(ctx)
	if err != nil {
		return nil, err // not a nil *lock.Lease in a non-nil interface
	}
	return lease, nil
}

// kind is one kind of lock, sound or not.
type kind struct {
	name string
	// open returns a new client's view of the lock named orders.
	open func(r *rig, ttl time.Duration) classic.Lock
}

// soundKinds returns the kinds of package lock, without renewal: the tests must not
// depend on it.
func soundKinds() []kind {
	once := func(ttl time.Duration) lock.Options {
		return lock.Options{TTL: ttl, Renew: lock.Renew{Off: true}}
	}
	return []kind{
		{"Mutex", func(r *rig, ttl time.Duration) classic.Lock {
			return sound{check.Must(r.client().Mutex("orders", once(ttl)))(r)}
		}},
		{"Reentrant", func(r *rig, ttl time.Duration) classic.Lock {
			return sound{check.Must(r.client().Reentrant("orders", once(ttl)))(r)}
		}},
		{"RW", func(r *rig, ttl time.Duration) classic.Lock {
			return r.side(true, once(ttl))
		}},
		{"Fair", func(r *rig, ttl time.Duration) classic.Lock {
			return sound{check.Must(r.client().Fair("orders", once(ttl)))(r)}
		}},
	}
}

// classicKinds returns the historic forms, for writers.
func classicKinds() []kind {
	var kinds []kind
	for _, f := range classic.Forms() {
		kinds = append(kinds, kind{f.Name, func(r *rig, ttl time.Duration) classic.Lock {
			return f.New(r.rdb, "orders", classic.Options{TTL: ttl})
		}})
	}
	return kinds
}

// each runs f for every kind, under a fake clock and on a redis-server.
func each(t *testing.T, kinds []kind, f func(*rig, kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(r *rig) { f(r, k) })
		})
	}
}
