package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"locktop/lock"
)

// Six workers, on any number of hosts, of which two at a time use a service that admits two.
func Example_pool() {
	rdb, done := exampleRedis()
	defer done()
	client, err := lock.New(rdb, lock.Config{Owner: "worker-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	service, err := client.Semaphore("service:convert", 2, lock.Options{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also bounds the wait
	defer cancel()
	var busy, finished atomic.Int64
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			err := lock.Do(ctx, service, func(ctx context.Context) error {
				if busy.Add(1) > 2 {
					fmt.Println("too many")
				}
				defer busy.Add(-1)
				finished.Add(1) // work that stops when ctx ends
				return ctx.Err()
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	workers.Wait()
	inUse, limit, err := service.Permits(ctx)
	fmt.Println(finished.Load(), "finished;", inUse, "of", limit, "permits are in use", err)
	// Output: 6 finished; 0 of 2 permits are in use <nil>
}
