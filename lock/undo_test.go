package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// Acquires were given up, and the server refuses connections for an hour: the client
// dials about once per second.
func TestUndosInAnOutageTakeTheirTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		var dials atomic.Int64
		dial := r.link.Dial
		via := redis.NewClient(&redis.Options{Addr: r.via.Options().Addr, DisableIdentity: true,
			Dialer: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				dials.Add(1)
				return dial(ctx, network, addr)
			}})
		defer via.Close()
		c, err := lock.New(via, lock.Config{})
		r.must(err)
		defer c.Close()
		warm, err := c.Mutex("warm", lock.Options{}).TryLock(ctx)
		r.must(err)
		r.must(warm.Unlock(ctx))
		r.link.FreezeReplies()
		var all sync.WaitGroup
		for i := range 100 {
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
		if n := dials.Load() - before; n > 100*60*2 || n == 0 {
			r.Errorf("%d dials a minute for 100 undos", n)
		}
		r.link.Thaw()
		r.link.Refuse(nil)
		time.Sleep(3 * time.Second)
		if keys := r.rdb.Keys(ctx, "*").Val(); len(keys) > 0 {
			r.Errorf("left behind: %q", keys)
		}
	})
}
