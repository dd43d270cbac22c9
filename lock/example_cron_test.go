package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"locktop/lock"
)

// runOnce runs a job that every host starts at the same time: only one of them runs it. The name
// has the scheduled time. The lock is kept after a success, so that a host whose clock is late does
// not run the job again; it expires by itself. After a failure another host may try.
func runOnce(ctx context.Context, client *lock.Client, name string, job func(context.Context) error) (ran bool, err error) {
	l, err := client.Mutex("cron:"+name, lock.Options{TTL: time.Hour, Renew: lock.Renew{Off: true}})
	if err != nil {
		return false, err
	}
	lease, err := l.TryLock(ctx)
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := job(lease.ContextFrom(ctx)); err != nil {
		return true, errors.Join(err, lease.Unlock(context.WithoutCancel(ctx)))
	}
	return true, nil
}

// A cron job that all hosts start and one runs.
func Example_cron() {
	rdb, done := exampleRedis()
	defer done()
	var mu sync.Mutex
	results := map[string]int{}
	var hosts sync.WaitGroup
	for i := range 3 {
		client, err := lock.New(rdb, lock.Config{Owner: fmt.Sprint("host-", i+1)})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer client.Close() // also releases the lock that is kept
		hosts.Go(func() {
			ran, err := runOnce(context.Background(), client, "report@02:00", func(context.Context) error { return nil })
			mu.Lock()
			defer mu.Unlock()
			results[fmt.Sprint(ran, " ", err)]++
		})
	}
	hosts.Wait()
	fmt.Println(results)
	// Output: map[false <nil>:2 true <nil>:1]
}
