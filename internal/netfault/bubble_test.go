package netfault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
)

// withProxy runs f in a synctest bubble, with a client that reaches an embedded
// server through a proxy.
func withProxy(t *testing.T, f func(t *testing.T, proxy *netfault.Network, rdb *redis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		proxy := netfault.New(e.Dial)
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr(), Dialer: proxy.Dial, MaxRetries: -1, ReadTimeout: time.Hour,
			ContextTimeoutEnabled: true, DisableIdentity: true})
		defer e.Close()
		defer rdb.Close()
		defer proxy.Thaw()
		f(t, proxy, rdb)
	})
}

func TestAFrozenProxyDeliversWhenItThaws(t *testing.T) {
	withProxy(t, func(t *testing.T, proxy *netfault.Network, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		proxy.Freeze()
		answered := make(chan error, 1)
		go func() { answered <- rdb.Set(ctx, "k", "v", 0).Err() }()
		time.Sleep(time.Minute)
		select {
		case err := <-answered:
			t.Fatalf("a reply passed a frozen network: %v", err)
		default:
		}
		proxy.Thaw()
		check.NoError(t, <-answered, "after the thaw")
	})
}

func TestADelayedProxyDeliversLater(t *testing.T) {
	withProxy(t, func(t *testing.T, proxy *netfault.Network, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		proxy.Delay(func() time.Duration { return time.Second })
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v, want an answer after a second each way", err, time.Since(began))
		}
		proxy.DelayReplies(func() time.Duration { return time.Second })
		began = time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want an answer after the second of the reply", err, time.Since(began))
		}
		proxy.Delay(func() time.Duration { return time.Second })
		go func() {
			time.Sleep(500 * time.Millisecond)
			proxy.Thaw()
		}()
		began = time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%v after %v, want an answer with the thaw", err, time.Since(began))
		}
	})
}

// The first packets of a connection are not delayed if Undelayed is set.
func TestTheHandshakeIsNotDelayed(t *testing.T) {
	withProxy(t, func(t *testing.T, proxy *netfault.Network, rdb *redis.Client) {
		ctx := context.Background()
		proxy.Undelayed = 4
		proxy.Delay(func() time.Duration { return time.Second })
		began := time.Now()
		for i := range 6 {
			check.NoError(t, rdb.Ping(ctx).Err())
			check.True(t, i != 0 || time.Since(began) == 0, "the first answer took %v", time.Since(began))
		}
		took := time.Since(began)
		check.True(t, took >= 2*time.Second && took <= 10*time.Second, "six answers took %v, want some undelayed and some not", took)
	})
}

func TestAFrozenReplyHidesACompletedCommand(t *testing.T) {
	withProxy(t, func(t *testing.T, proxy *netfault.Network, rdb *redis.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		rdb.Ping(ctx)
		proxy.FreezeReplies()
		check.Require(t, rdb.Set(ctx, "k", "v", 0).Err() != nil, "a reply passed")
		proxy.Thaw()
		v := rdb.Get(context.Background(), "k").Val()
		check.Require(t, v == "v", "the server has %q, want what was set unheard", v)
	})
}

func TestACutOrRefusedProxyFails(t *testing.T) {
	withProxy(t, func(t *testing.T, proxy *netfault.Network, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		proxy.Cut()
		check.True(t, rdb.Ping(ctx).Err() != nil, "a cut connection still answers")
		no := errors.New("no route")
		proxy.Refuse(no)
		check.ErrorIs(t, rdb.Ping(ctx).Err(), no, "refused dial ended with")
		proxy.Refuse(nil)
		check.ErrorIs(t, rdb.Ping(ctx).Err(), nil, "after the refusal")
	})
}
