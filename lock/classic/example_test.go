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
