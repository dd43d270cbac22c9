package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
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

// client is a [lock.Client] whose locks report their invalid arguments themselves.
type client struct{ *lock.Client }

// open returns a client that the test must close.
func (r tester) open(via redis.UniversalClient, cfg lock.Config) *client {
	r.Helper()
	return &client{check.Must(lock.New(via, cfg))(r)}
}

func (c *client) As(owner string) *client { return &client{c.Client.As(owner)} }

func (c *client) Mutex(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Mutex(key, o))
}
func (c *client) Fair(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Fair(key, o))
}
func (c *client) Reentrant(key string, o lock.Options) lock.Locker {
	return orRefused(c.Client.Reentrant(key, o))
}
func (c *client) All(keys []string, o lock.Options) lock.Locker {
	return orRefused(c.Client.All(keys, o))
}
func (c *client) Semaphore(key string, limit int, o lock.Options) *lock.Semaphore {
	s, err := c.Client.Semaphore(key, limit, o)
	if err != nil {
		return &lock.Semaphore{}
	}
	return s
}

func (c *client) RW(key string, o lock.Options) *rw {
	reader, writer, err := c.Client.RW(key, o)
	return &rw{orRefused(reader, err), orRefused(writer, err)}
}

// rw is an owner of a read/write lock.
type rw struct{ reader, writer lock.Locker }

func (rw *rw) Reader() lock.Locker { return rw.reader }
func (rw *rw) Writer() lock.Locker { return rw.writer }

// quorum is a [lock.Quorum] whose locks report their invalid arguments themselves.
type quorum struct{ *lock.Quorum }

func (q *quorum) As(owner string) *quorum { return &quorum{q.Quorum.As(owner)} }

func (q *quorum) Redlock(key string, o lock.Options) lock.Locker {
	return orRefused(q.Quorum.Redlock(key, o))
}

// orRefused returns a lock; that of an error returns the error from each method.
func orRefused(l lock.Locker, err error) lock.Locker {
	if err != nil {
		return refused{err}
	}
	return l
}

// refused is a lock with invalid arguments.
type refused struct{ error }

func (l refused) TryLock(context.Context) (*lock.Lease, error)    { return nil, l.error }
func (l refused) Lock(context.Context) (*lock.Lease, error)       { return nil, l.error }
func (l refused) Holder(context.Context) (*lock.HeldError, error) { return nil, l.error }

// fenceOf returns the fence of a lease; 0 if it has none.
func fenceOf(lease *lock.Lease) int64 {
	fence, _ := lease.Fence()
	return fence
}

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
