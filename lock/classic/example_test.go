package classic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"locktop/internal/server"
	"locktop/lock/classic"
)

// onRedis runs an example with its own server.
func onRedis(f func(ctx context.Context, rdb server.Client)) {
	e, err := server.StartEmbedded()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	rdb := server.NewClient(e.Addr(), server.ClientOptions{})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f(ctx, rdb)
}

// A client that dies between the two commands.
func ExampleSetnxExpire() {
	onRedis(func(ctx context.Context, rdb server.Client) {
		power := errors.New("power failure")
		victim := classic.NewSetnxExpire(rdb, "orders", classic.Options{
			TTL: time.Second,
			Hooks: classic.Hooks{Between: func(_ context.Context, next classic.Step) error {
				return power
			}},
		})
		_, err := victim.TryLock(ctx)
		fmt.Println(err)
		fmt.Println("PTTL:", int64(rdb.PTTL(ctx, "orders").Val()))
	})
	// Output:
	// classic: lock "orders": died before EXPIRE: power failure
	// PTTL: -1
}

// Two clients of which one has a clock that is 2 s ahead.
func ExampleGetset() {
	onRedis(func(ctx context.Context, rdb server.Client) {
		ahead := classic.Hooks{Now: func() time.Time { return time.Now().Add(2 * time.Second) }}
		_, err := classic.NewGetset(rdb, "orders", classic.Options{TTL: time.Second}).TryLock(ctx)
		fmt.Println("first:", err)
		_, err = classic.NewGetset(rdb, "orders", classic.Options{TTL: time.Second, Hooks: ahead}).TryLock(ctx)
		fmt.Println("second:", err)
	})
	// Output:
	// first: <nil>
	// second: <nil>
}

// A holder whose work takes longer than its TTL.
func ExampleBlindDelete() {
	onRedis(func(ctx context.Context, rdb server.Client) {
		try := func(ttl time.Duration) (classic.Hold, error) {
			return classic.NewBlindDelete(rdb, "orders", classic.Options{TTL: ttl}).TryLock(ctx)
		}
		late, err := try(10 * time.Millisecond)
		fmt.Println("first locks:", err)
		for _, err = try(time.Minute); errors.Is(err, classic.ErrHeld); _, err = try(time.Minute) {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("second locks, once the first one's time is up:", err)
		fmt.Println("first unlocks:", late.Unlock(ctx))
		_, err = try(time.Minute)
		fmt.Println("third locks:", err)
	})
	// Output:
	// first locks: <nil>
	// second locks, once the first one's time is up: <nil>
	// first unlocks: <nil>
	// third locks: <nil>
}

// Two readers and a writer.
func ExampleStampRW() {
	onRedis(func(ctx context.Context, rdb server.Client) {
		at := func(ms int64) *classic.StampRW {
			return classic.NewStampRW(rdb, "orders", classic.Options{Hooks: classic.Hooks{
				Now: func() time.Time { return time.UnixMilli(ms) },
			}})
		}
		first, _ := at(1000).Reader().TryLock(ctx)
		second, _ := at(1001).Reader().TryLock(ctx)
		fmt.Println("the second reader unlocks:", second.Unlock(ctx))
		_, err := at(1002).Writer().TryLock(ctx)
		fmt.Println("a writer locks:", err)
		fmt.Println("the first reader unlocks:", first.Unlock(ctx))
	})
	// Output:
	// the second reader unlocks: <nil>
	// a writer locks: <nil>
	// the first reader unlocks: classic: unlock "orders": lock was lost
}

// All forms have the same interface.
func ExampleForms() {
	onRedis(func(ctx context.Context, rdb server.Client) {
		for _, f := range classic.Forms() {
			hold, err := f.New(rdb, "orders:"+f.Name, classic.Options{}).TryLock(ctx)
			if err == nil {
				err = hold.Unlock(ctx)
			}
			fmt.Println(f.Name, err)
		}
	})
	// Output:
	// setnx-expire <nil>
	// exists-set <nil>
	// getset <nil>
	// blind-delete <nil>
	// get-then-del <nil>
	// counted <nil>
	// two-key-rw <nil>
	// stamp-rw <nil>
	// quorum-semaphore <nil>
}
