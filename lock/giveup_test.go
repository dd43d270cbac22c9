package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// givingUp are the ways in which an acquire fails. Each returns its error and leaves
// the link frozen.
var givingUp = []struct {
	name string
	want error // nil = any
	try  func(r *rig, l lock.Locker) error
}{
	{"cancelled after the server has acted", context.Canceled, func(r *rig, l lock.Locker) error {
		r.link.FreezeReplies()
		cancelled, cancel := context.WithCancel(ctx)
		failed := inBackground(func() error { return tried(l.Lock(cancelled)) })
		r.until("the server to act", func() bool { return r.keys() > 0 })
		cancel()
		return <-failed
	}},
	{"timed out before the server has heard of it", context.DeadlineExceeded, func(r *rig, l lock.Locker) error {
		r.link.Freeze()
		return within(5*time.Millisecond, l.TryLock)
	}},
	{"timed out without an answer", context.DeadlineExceeded, func(r *rig, l lock.Locker) error {
		r.link.FreezeReplies()
		return within(5*time.Millisecond, l.Lock)
	}},
	{"broken off after the server has acted", nil, func(r *rig, l lock.Locker) error {
		r.link.FreezeReplies()
		failed := inBackground(func() error { return tried(l.TryLock(ctx)) })
		r.until("the server to act", func() bool { return r.keys() > 0 })
		r.link.Cut()
		return <-failed
	}},
}

// tried returns the error of an acquire.
func tried[T any](_ T, err error) error { return err }

// within acquires with a timeout.
func within(d time.Duration, acquire func(context.Context) (*lock.Lease, error)) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return tried(acquire(short))
}

// inBackground runs f and passes on its error.
func inBackground(f func() error) <-chan error {
	failed := make(chan error, 1)
	go func() { failed <- f() }()
	return failed
}

// keys returns the number of keys.
func (r *rig) keys() int64 { return r.rdb.DBSize(ctx).Val() }

// Scenarios 71 and 82: the server executes a request that was given up. One round trip
// after the server answers again, the client has left neither a key nor a place in a
// queue. After a broken connection this holds once there is another one. Promise P3.
func TestAnAcquireThatWasGivenUpLeavesNothingBehind(t *testing.T) {
	onBothFirst(t, func(r *rig) {
		c := r.client(lock.Config{})
		for _, l := range everyKind(c, "before", lock.Options{}) {
			r.must(r.locked(l).Unlock(ctx)) // the server knows its scripts from now on
		}
		r.until("nothing to be there", func() bool { return r.keys() == 0 })
		other := c.Mutex("other", lock.Options{})
		rounds := tries(20)
		for i := range rounds {
			way := givingUp[i%len(givingUp)]
			for kind, l := range everyKind(c, fmt.Sprint("orders", i), lock.Options{TTL: time.Minute}) {
				err := way.try(r, l)
				check.Require(r, err != nil && (way.want == nil || errors.Is(err, way.want)), "%s, %s: got %v, want %v", kind, way.name, err, way.want)
				r.link.Thaw()
				if way.want == nil {
					r.until("the undo", func() bool { return r.keys() == 0 })
					continue
				}
				lease := r.locked(other)
				n := r.keys()
				check.Require(r, n == 1, "%s, %s: %d orphans", kind, way.name, n-1)
				r.must(lease.Unlock(ctx))
			}
		}
		r.Logf("%d acquires of each kind were given up", rounds)
	})
}
