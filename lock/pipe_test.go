package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
	"locktop/server"
)

func TestRepliesReachThoseWhoAskedAlsoWhenOthersGiveUp(t *testing.T) {
	onRedis(t, func(r *rig) {
		c := r.client(lock.Config{})
		var crowd sync.WaitGroup
		for i := range 16 {
			crowd.Go(func() {
				for n := range 150 {
					r.lockBriefly(c.Mutex(fmt.Sprintf("orders:%d:%d", i, n), lock.Options{TTL: time.Hour}))
					if i >= 4 && n%10 == 0 {
						time.Sleep(rand.N(5 * time.Millisecond)) // a caller is sometimes alone
					}
				}
			})
		}
		crowd.Wait()
		r.until("what was given up to be undone", func() bool { return r.rdb.DBSize(ctx).Val() == 0 })
	})
}

// lockBriefly locks with a short timeout, and checks the result.
func (r *rig) lockBriefly(m *lock.Mutex) {
	brief, cancel := context.WithTimeout(ctx, rand.N(400*time.Microsecond))
	defer cancel()
	lease, err := m.TryLock(brief)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			r.Error(err)
		}
		return
	}
	if stored := r.rdb.Get(ctx, lease.Key()).Val(); stored != lease.Token() {
		r.Errorf("%q holds %q, want our token %q", lease.Key(), stored, lease.Token())
	}
	if err := lease.Unlock(ctx); err != nil {
		r.Error(err)
	}
}

func TestAConnectionThatEndsWhileNobodyUsesItIsNotNoticed(t *testing.T) {
	inBubble(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		for range 3 {
			for range 3 { // the caller reads the later replies
				lease, err := m.TryLock(ctx)
				r.must(err)
				r.must(lease.Unlock(ctx))
			}
			time.Sleep(2 * time.Second)
			r.link.Cut()
			time.Sleep(time.Millisecond)
		}
	})
}

func TestASilentServerIsGivenUp(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "in company": 3} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				c := r.client(lock.Config{})
				lease, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
				r.must(err)
				r.must(lease.Unlock(ctx))
				r.link.Freeze()
				var crowd sync.WaitGroup
				for i := range 1 + others {
					crowd.Go(func() {
						began := time.Now()
						patient, cancel := context.WithTimeout(ctx, time.Minute)
						defer cancel()
						_, err := c.Mutex(fmt.Sprint("orders:", i), lock.Options{}).TryLock(patient)
						limit := r.via.Options().ReadTimeout
						if took := time.Since(began); err == nil || patient.Err() != nil || took != limit {
							r.Errorf("after %v: %v; want an error after %v", took, err, limit)
						}
					})
				}
				crowd.Wait()
				r.link.Thaw()
				lease, err = c.Mutex("orders", lock.Options{}).TryLock(ctx)
				r.must(err)
				r.must(lease.Unlock(ctx))
			})
		})
	}
}

func TestWhoHasNoReadTimeoutWaitsForASilentServer(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := *r.rdb.Options()
		o.Dialer, o.ReadTimeout = r.link.Dial, -1
		patient := redis.NewClient(&o)
		defer patient.Close()
		c, err := lock.New(patient, lock.Config{})
		r.must(err)
		defer c.Close()
		m := c.Mutex("orders", lock.Options{TTL: time.Hour})
		for range 2 { // with and without a connection
			r.link.Freeze()
			time.AfterFunc(time.Minute, r.link.Thaw)
			began := time.Now()
			lease, err := m.TryLock(ctx)
			r.must(err)
			if took := time.Since(began); took != time.Minute {
				r.Errorf("granted after %v, the server was silent for a minute", took)
			}
			r.must(lease.Unlock(ctx))
		}
	})
}

func TestLocksAreWhereTheClientPointsTo(t *testing.T) {
	child := server.ForTest(t, "--requirepass", "secret")
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), Password: "secret", DB: 5})
	t.Cleanup(func() { rdb.Close() })
	c, err := lock.New(rdb, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	lease, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stored := rdb.Get(ctx, "orders").Val(); stored != lease.Token() {
		t.Errorf("database 5 holds %q, want %q", stored, lease.Token())
	}
}

func TestAUserWhoMayNotPingCanLock(t *testing.T) {
	onRedis(t, func(r *rig) {
		r.must(r.rdb.ACLSetUser(ctx, "plain", "on", ">secret", "~*", "+@all", "-ping").Err())
		_ = r.rdb.ACLSetUser(ctx, "plain", "&*").Err() // Redis 6.0 has no channel permissions
		rdb := redis.NewClient(&redis.Options{Addr: r.rdb.Options().Addr, Username: "plain", Password: "secret"})
		defer rdb.Close()
		c, err := lock.New(rdb, lock.Config{})
		r.must(err)
		defer c.Close()
		lease, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
		r.must(err)
		r.must(lease.Unlock(ctx))
	})
}

// A connection that was just used is closed as fast as an idle one.
func TestCloseWaitsForNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		lease, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
		r.must(err)
		r.must(lease.Unlock(ctx))
		began := time.Now()
		r.must(c.Close())
		if took := time.Since(began); took > 0 {
			r.Errorf("Close took %v", took)
		}
	})
}

// A dial may end after the client has given it up; its connection is closed then. The
// race detector finds unguarded accesses.
func TestAConnectionMadeAfterCloseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		entered := make(chan struct{})
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				close(entered)
				<-ctx.Done() // go-redis has given up the dial
				return near, nil
			},
		})
		defer rdb.Close()
		c, err := lock.New(rdb, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tried := make(chan error, 1)
		go func() {
			_, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
			tried <- err
		}()
		<-entered
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-tried; err == nil {
			t.Error("a closed client gave a lock")
		}
		far.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection made after Close gave %v, want EOF", err)
		}
	})
}
