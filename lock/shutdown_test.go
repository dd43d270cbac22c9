package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
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

// Guarantee 9: Close returns, whatever the server does.
func TestCloseReturnsIfNoServerAnswers(t *testing.T) {
	testtier.Long(t, "Close waits for frozen servers, nodes and a cluster")
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		onChild(t, func(r *rig, child *server.Child) {
			c := r.client(lock.Config{})
			lease := r.lock(c.Mutex("orders", lock.Options{}))
			r.must(child.Freeze())
			closesSoon(t, c.Close, lease)
		})
	})
	t.Run("five nodes", func(t *testing.T) {
		nodesOnRedis(t, 5, func(r *nodes) {
			q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
			lease := r.lock(q.Redlock("orders", lock.Options{}))
			r.freeze(0, 1, 2, 3, 4)
			closesSoon(t, q.Close, lease)
		})
	})
	t.Run("cluster", func(t *testing.T) {
		r := onCluster(t, servertest.ClusterOptions{})
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.nodes.Addrs(), ReadTimeout: time.Minute})
		defer rdb.Close()
		c := r.open(rdb, lock.Config{})
		var leases []*lock.Lease
		for i := range 20 { // on all masters
			lease := r.lock(c.Mutex(fmt.Sprint("orders", i), lock.Options{}))
			leases = append(leases, lease)
		}
		for _, node := range r.nodes.Nodes() {
			r.must(node.Freeze())
		}
		closesSoon(t, c.Close, leases...)
	})
}

// closesSoon checks that end returns soon, and that the leases end.
func closesSoon(t *testing.T, end func() error, leases ...*lock.Lease) {
	t.Helper()
	began := time.Now()
	err := end()
	took := time.Since(began)
	t.Logf("closed after %v: %v", took, err)
	check.AtMost(t, took, 10*time.Second, "Close took")
	for _, lease := range leases {
		check.ErrorIs(t, context.Cause(lease.Context()), lock.ErrClosed, "a lease ended with")
	}
}

// late has the requests that contain text arrive late: the first one after the first delay,
// and so on. If a delay is longer than the client's ReadTimeout of 5 s, the client closes
// the connection meanwhile. Call late before the first request.
func late(link *netfault.Network, text string, delays ...time.Duration) {
	link.Undelayed = 0
	var next time.Duration
	link.Sent = func(request []byte) {
		if len(delays) > 0 && bytes.Contains(request, []byte(text)) {
			next, delays = delays[0], delays[1:]
		}
	}
	link.Delay(func() time.Duration {
		d := next
		next = 0
		return d
	})
}

// The server reads an acquire from a closed connection after the first release, which came
// on another connection. The second release finds the key.
func TestAnAcquireThatItsUndoOvertakesIsUndone(t *testing.T) {
	inBubble(t, func(r *rig) {
		readTimeout := r.via.Options().ReadTimeout
		late(r.link, "orders", readTimeout+time.Millisecond)
		c := r.client(lock.Config{})
		r.must(r.locked(c.Mutex("warm", lock.Options{})).Unlock(ctx)) // the server knows the scripts
		began := time.Now()
		_, err := c.Mutex("orders", lock.Options{TTL: time.Minute}).TryLock(ctx)
		took := time.Since(began)
		check.Require(r, err != nil && took == readTimeout, "got %v after %v, want the end of the connection after %v", err, took, readTimeout)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		check.Require(r, r.rdb.Exists(ctx, "orders").Val() == 1, "the acquire has not arrived")
		time.Sleep(time.Second)
		r.holds("orders", "")
	})
}

// Acquires were given up, and the server refuses connections for an hour: the client
// dials about once per second.
func TestUndosInAnOutageTakeTheirTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		var dials atomic.Int64
		r.dialBy(func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			dials.Add(1)
			return r.link.Dial(ctx, network, addr)
		})
		c := r.client(lock.Config{})
		r.must(r.locked(c.Mutex("warm", lock.Options{})).Unlock(ctx))
		r.link.FreezeReplies()
		var all sync.WaitGroup
		undos := testtier.Size(20, 100, 100)
		for i := range undos {
			all.Go(func() {
				_ = within(100*time.Millisecond, c.Mutex(fmt.Sprint(i), lock.Options{TTL: 2 * time.Hour}).TryLock)
			})
		}
		all.Wait()
		r.link.Refuse(errors.New("connection refused"))
		r.link.Cut()
		time.Sleep(time.Minute)
		before := dials.Load()
		time.Sleep(time.Minute)
		n := dials.Load() - before
		check.True(r, n <= int64(undos)*60*2 && n != 0, "%d dials a minute for %d undos", n, undos)
		r.link.Thaw()
		r.link.Refuse(nil)
		time.Sleep(3 * time.Second)
		keys := r.rdb.Keys(ctx, "*").Val()
		check.True(r, len(keys) == 0, "left behind: %q", keys)
	})
}

// While 1,000 attempts are not undone, no further one is sent.
func TestGivenUpAttemptsAreBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		var sent atomic.Int64
		r.link.Sent = func(request []byte) { sent.Add(int64(bytes.Count(request, []byte("last one")))) }
		c := r.client(lock.Config{})
		r.must(r.locked(c.Mutex("warm", lock.Options{})).Unlock(ctx))
		r.link.FreezeReplies()
		for i := range 1000 {
			check.ErrorIs(r, within(time.Microsecond, c.Mutex(fmt.Sprint(i), lock.Options{}).TryLock), context.DeadlineExceeded)
		}
		check.ErrorIs(r, within(time.Second, c.Mutex("last one", lock.Options{}).Lock), context.DeadlineExceeded)
		synctest.Wait()
		check.Equal(r, sent.Load(), 0, "requests that were sent")
		r.link.Thaw()
		r.must(pass(c.Mutex("last one", lock.Options{})))
	})
}
