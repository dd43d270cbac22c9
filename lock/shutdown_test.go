package lock_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// The reply to an acquire is on its way when the client is closed.
func TestCloseGivesBackWhatIsBeingAcquired(t *testing.T) {
	onBothLong(t, "it waits for the time limit of Close", func(r *rig) {
		for _, kind := range []string{"mutex", "fair", "semaphore"} {
			c, o := r.client(lock.Config{}), lock.Options{TTL: time.Minute}
			r.must(pass(kinds[kind](c, "warm", o)))
			r.link.FreezeReplies()
			done := inBackground(func() error { return tried(kinds[kind](c, kind, o).Lock(ctx)) })
			r.until("the server to act", func() bool { return r.rdb.Exists(ctx, kind).Val() == 1 })
			r.must(c.Close())
			check.ErrorIs(r, <-done, lock.ErrClosed, "Lock said")
			r.link.Thaw()
			r.until("the release", func() bool { return r.rdb.Exists(ctx, kind).Val() == 0 })
		}
	})
}

// The reply arrives while Close waits for the call.
func TestALockThatIsGrantedDuringCloseIsGivenBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		m := c.Mutex("orders", lock.Options{TTL: time.Minute})
		r.must(r.lock(m).Unlock(ctx)) // the connection is open now
		r.link.FreezeReplies()
		call := lockAsync(ctx, m)
		synctest.Wait()
		closed := inBackground(c.Close)
		synctest.Wait()
		r.link.Thaw()
		<-call.done
		check.ErrorIs(r, call.err, lock.ErrClosed)
		r.must(<-closed)
		check.Equal(r, r.rdb.Exists(ctx, "orders").Val(), 0, "locks")
	})
}

func TestCloseMayBeCalledFromObserve(t *testing.T) {
	for _, kind := range []lock.EventKind{lock.Contended, lock.Acquired, lock.Renewed, lock.Released, lock.Lost, lock.Expired} {
		inBubble(t, func(r *rig) {
			var c *client
			closed := make(chan error, 1)
			c = r.open(r.via, lock.Config{Observe: func(e lock.Event) {
				if e.Kind == kind {
					select {
					case closed <- c.Close():
					default:
					}
				}
			}})
			defer c.Close()
			m := c.Mutex("orders", lock.Options{TTL: time.Second})
			if kind == lock.Lost {
				time.AfterFunc(100*time.Millisecond, func() { r.rdb.Del(ctx, "orders") })
			}
			if kind == lock.Expired {
				m = c.Mutex("orders", lock.Options{TTL: time.Second, Renew: lock.Renew{Off: true}})
			}
			lease, err := m.Lock(ctx)
			if err == nil && kind == lock.Contended {
				_, _ = c.As("other").Mutex("orders", lock.Options{}).TryLock(ctx)
			}
			if err == nil && kind == lock.Released {
				_ = lease.Unlock(ctx)
			}
			began := time.Now()
			select {
			case err := <-closed:
				r.must(err)
			case <-time.After(5 * time.Second):
				r.Errorf("%v: Close has not returned after 5 s", kind)
			}
			check.AtMost(r, time.Since(began), 2*time.Second, "%v: Close took", kind)
			runtime.KeepAlive(lease)
		})
	}
}

// The others stay.
func TestAnIdentityEndsWithTheOneItComesFrom(t *testing.T) {
	onBoth(t, func(r *rig) {
		root := r.client(lock.Config{})
		a := root.As("a")
		b := a.As("b")
		held := r.lock(b.Mutex("held", lock.Options{}))
		theirs, others := r.lock(root.Mutex("theirs", lock.Options{})), r.lock(root.As("other").Mutex("others", lock.Options{}))
		waiter := inBackground(func() error { return tried(b.Mutex("theirs", lock.Options{}).Lock(ctx)) })
		r.until("a waiter", func() bool { return root.Stats().Waiting == 1 })
		r.must(a.Close())
		check.ErrorIs(r, <-waiter, lock.ErrClosed, "a waiter")
		check.ErrorIs(r, tried(b.Mutex("orders", lock.Options{}).TryLock(ctx)), lock.ErrClosed, "TryLock")
		check.ErrorIs(r, tried(a.As("c").Mutex("orders", lock.Options{}).Lock(ctx)), lock.ErrClosed, "Lock")
		check.ErrorIs(r, context.Cause(held.Context()), lock.ErrClosed, "the lease ended with")
		r.holds("held", "")
		r.holds("others", others.Token())
		check.True(r, theirs.Valid() && others.Valid(), "the wrong lease ended")
		r.must(theirs.Unlock(ctx))
		r.must(others.Unlock(ctx))
	})
}

func TestAnIdentityThatIsDroppedCostsNothing(t *testing.T) {
	alone(t)
	onRedis(t, func(r *rig) {
		root := r.client(lock.Config{})
		held := r.lock(root.Mutex("orders", lock.Options{}))
		heap := func() int {
			for range 3 {
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		const n = 100_000
		for range n {
			root.As("request")
		}
		grown := heap() - before
		check.True(r, grown <= 20*n, "%d identities that were never used take %d bytes each", n, grown/n)
		short, cancel := context.WithCancel(ctx)
		cancel()
		for range 1000 { // waiting goroutines hold contexts that derive from the root
			short, cancel := context.WithTimeout(ctx, time.Microsecond)
			_, _ = root.As("request").Mutex("orders", lock.Options{}).Lock(short)
			cancel()
		}
		_, _ = root.As("request").Mutex("orders", lock.Options{}).Lock(short)
		r.must(held.Unlock(ctx))
	})
}

// A dialer may ignore its context.
func TestCloseDoesNotWaitForADialerForEver(t *testing.T) {
	inBubble(t, func(r *rig) {
		hangs := make(chan struct{})
		r.dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-hangs
			return nil, net.ErrClosed
		})
		c := r.open(r.via, lock.Config{})
		short := r.soon(time.Second)
		check.ErrorIs(r, tried(c.Mutex("orders", lock.Options{}).Lock(short)), context.DeadlineExceeded)
		began := time.Now()
		_ = c.Close()
		check.AtMost(r, time.Since(began), 5*time.Second, "Close took")
		close(hangs)
	})
}

func TestALockIsFreeAfterItsLongestHold(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		o := lock.Options{TTL: time.Hour, Renew: lock.Renew{MaxHold: time.Minute}}
		for kind, l := range everyKind(c, "orders", o) {
			lease := r.lock(l)
			<-lease.Context().Done()
			time.Sleep(time.Second)
			check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "%s ended with", kind)
			check.Equal(r, r.keys(), 0, "%s: keys left", kind)
		}
	})
}
