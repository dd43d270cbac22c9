package classic_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
	"locktop/lock/classic"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every failed connection
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: 4})
}

var ctx = context.Background()

var tcp netfault.Dialer = new(net.Dialer).DialContext

// rig is a Redis server for tests.
type rig struct {
	*testing.T
	addr string
	dial netfault.Dialer
	fake bool          // the clock is fake
	rdb  server.Client // of the historic forms and of other programs; also the argument of lock.New
}

// inBubble runs f on the embedded server under a fake clock.
func inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		t.Cleanup(func() { // go-redis may dial in the background, and once more after 0.1 s
			e.Close()
			time.Sleep(time.Second)
		})
		r := newRig(t, e.Addr(), e.Dial)
		r.fake = true
		f(r)
	})
}

// onBoth runs f under a fake clock and, in the long tier, on a redis-server.
func onBoth(t *testing.T, f func(*rig)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { inBubble(t, f) })
	t.Run("redis-server", func(t *testing.T) {
		testtier.Long(t, "the same runs under a fake clock")
		f(newRig(t, servertest.RedisForTest(t).Addr(), tcp))
	})
}

func newRig(t *testing.T, addr string, dial netfault.Dialer) *rig {
	r := &rig{T: t, addr: addr, dial: dial, rdb: server.NewClient(addr, server.ClientOptions{Dial: dial})}
	t.Cleanup(func() { r.rdb.Close() })
	return r
}

// client returns a client of package lock, which the test closes at its end.
func (r *rig) client() *lock.Client {
	r.Helper()
	c := check.Must(lock.New(r.rdb.(redis.UniversalClient), lock.Config{}))(r)
	r.Cleanup(func() { c.Close() })
	return c
}

// must ends the test if err is not nil.
func (r *rig) must(err error) {
	r.Helper()
	check.NoError(r, err)
}

// try returns a hold, which ends with the test; nil if the lock is held.
func (r *rig) try(l classic.Lock) classic.Hold {
	r.Helper()
	h, err := l.TryLock(ctx)
	for !r.fake && slow(err) {
		h, err = l.TryLock(ctx)
	}
	if errors.Is(err, classic.ErrHeld) || errors.Is(err, lock.ErrHeld) {
		return nil
	}
	r.must(err)
	r.Cleanup(func() { _ = h.Unlock(ctx) }) // often lost on purpose
	return h
}

// slow reports whether an attempt failed because the machine is busy: a node of a quorum has 50 ms
// for its reply, and the shortest TTL may end before the reply is read.
func slow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrLost)
}

// take is try for a lock that must be free.
func (r *rig) take(l classic.Lock) classic.Hold {
	r.Helper()
	h := r.try(l)
	check.Require(r, h != nil, "the lock is held")
	return h
}

// await is take for a lock that becomes free.
func (r *rig) await(l classic.Lock) classic.Hold {
	r.Helper()
	var h classic.Hold
	r.until("the lock", func() bool {
		h = r.try(l)
		return h != nil
	})
	return h
}

// outlast lets a key expire. On a real clock it shortens the TTL of the key.
func (r *rig) outlast(key string) {
	r.Helper()
	left := r.rdb.PTTL(ctx, key).Val()
	check.Require(r, left > 0, "PTTL of %q is %d", key, left)
	if r.fake {
		time.Sleep(left + time.Millisecond)
	} else {
		r.must(r.rdb.PExpire(ctx, key, time.Millisecond).Err())
	}
	r.until("the key to expire", func() bool { return r.rdb.Exists(ctx, key).Val() == 0 })
}

// lost reports whether err says that the lock was lost before the unlock. The test
// ends after any other error.
func (r *rig) lost(err error) bool {
	r.Helper()
	check.Require(r, err == nil || errors.Is(err, classic.ErrLost) || errors.Is(err, lock.ErrLost), "%v", err)
	return err != nil
}

// until waits until true returns true, on a fake or a real clock.
func (r *rig) until(what string, true func() bool) {
	r.Helper()
	for limit := time.Now().Add(30 * time.Second); !true(); {
		check.Require(r, !time.Now().After(limit), "still waiting for %s", what)
		time.Sleep(time.Millisecond)
	}
}

// errKilled is what a hook returns to kill a client.
var errKilled = errors.New("killed")

// dyingBefore returns the hooks of a client that dies before a step.
func dyingBefore(step classic.Step) classic.Hooks {
	return before(step, func() error { return errKilled })
}

// before returns hooks that do something before a step.
func before(step classic.Step, do func() error) classic.Hooks {
	return classic.Hooks{Between: func(_ context.Context, next classic.Step) error {
		if next == step {
			return do()
		}
		return nil
	}}
}

// noon is the time that the clocks of tests show.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// at returns the hooks of a client whose clock always shows t.
func at(t time.Time) classic.Hooks {
	return classic.Hooks{Now: func() time.Time { return t }}
}
