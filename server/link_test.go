package server_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// linked runs f in a bubble with a client that reaches an embedded server
// through a link.
func linked(t *testing.T, f func(t *testing.T, link *server.Link, rdb *redis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		link := server.NewLink(e.Dial)
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr(), Dialer: link.Dial, MaxRetries: -1, ReadTimeout: time.Hour,
			ContextTimeoutEnabled: true, DisableIdentity: true})
		defer e.Close()
		defer rdb.Close()
		defer link.Thaw()
		f(t, link, rdb)
	})
}

func TestAFrozenLinkDeliversWhenItThaws(t *testing.T) {
	linked(t, func(t *testing.T, link *server.Link, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		link.Freeze()
		answered := make(chan error, 1)
		go func() { answered <- rdb.Set(ctx, "k", "v", 0).Err() }()
		time.Sleep(time.Minute)
		select {
		case err := <-answered:
			t.Fatalf("an answer came through a frozen link: %v", err)
		default:
		}
		link.Thaw()
		if err := <-answered; err != nil {
			t.Fatalf("after the thaw: %v", err)
		}
	})
}

func TestADelayedLinkDeliversLater(t *testing.T) {
	linked(t, func(t *testing.T, link *server.Link, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		for range 4 { // those of a greeting are not delayed
			rdb.Ping(ctx)
		}
		link.Delay(func() time.Duration { return time.Second })
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v, want an answer after a second each way", err, time.Since(began))
		}
		go func() {
			time.Sleep(500 * time.Millisecond)
			link.Thaw()
		}()
		began = time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%v after %v, want an answer with the thaw", err, time.Since(began))
		}
	})
}

func TestAFrozenReplyHidesADoneDeed(t *testing.T) {
	linked(t, func(t *testing.T, link *server.Link, rdb *redis.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		rdb.Ping(ctx)
		link.FreezeReplies()
		if err := rdb.Set(ctx, "k", "v", 0).Err(); err == nil {
			t.Fatal("a reply came through")
		}
		link.Thaw()
		if v := rdb.Get(context.Background(), "k").Val(); v != "v" {
			t.Fatalf("the server has %q, want what was set unheard", v)
		}
	})
}

func TestACutOrRefusedLinkFails(t *testing.T) {
	linked(t, func(t *testing.T, link *server.Link, rdb *redis.Client) {
		ctx := context.Background()
		rdb.Ping(ctx)
		link.Cut()
		if rdb.Ping(ctx).Err() == nil {
			t.Error("a cut connection still answers")
		}
		no := errors.New("no route")
		link.Refuse(no)
		if err := rdb.Ping(ctx).Err(); !errors.Is(err, no) {
			t.Errorf("refused dial ended with %v", err)
		}
		link.Refuse(nil)
		if err := rdb.Ping(ctx).Err(); err != nil {
			t.Errorf("after the refusal: %v", err)
		}
	})
}
