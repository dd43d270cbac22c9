package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/testtier"
	"locktop/lock"
)

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
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, _ = c.Mutex(fmt.Sprint(i), lock.Options{TTL: 2 * time.Hour}).TryLock(short)
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
