package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
	"locktop/lock"
)

// exampleRedis returns a client of an embedded server. A program uses its own client.
func exampleRedis() (rdb *redis.Client, done func()) {
	e, err := server.StartEmbedded()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: e.Addr()})
	return rdb, func() {
		rdb.Close()
		e.Close()
	}
}

// Do locks, calls the function, and unlocks.
func Example() {
	rdb, done := exampleRedis()
	defer done()

	client, err := lock.New(rdb, lock.Config{Owner: "billing-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	order, err := client.Mutex("orders:4711", lock.Options{TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = lock.Do(context.Background(), order, func(ctx context.Context) error {
		fmt.Println("settling", lock.LeaseFrom(ctx).Key())
		return nil // an error of the function, or of the lock
	})
	fmt.Println(err)
	// Output:
	// settling orders:4711
	// <nil>
}

// Do nothing if another process holds the lock. Unlock with a context that has not ended.
func ExampleLocker() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()
	report, err := client.Mutex("report:weekly", lock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := func(ctx context.Context) (err error) {
		lease, err := report.TryLock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lease.Unlock(context.WithoutCancel(ctx))) }()
		_, busy := report.TryLock(ctx)
		fmt.Println("another process does it:", errors.Is(busy, lock.ErrHeld))
		return nil
	}
	fmt.Println(run(context.Background()))
	// Output:
	// another process does it: true
	// <nil>
}

// Lock two accounts for a transfer. Another client may name them in the other order.
func ExampleClient_All() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{Owner: "billing-7"})
	defer client.Close()

	accounts, _ := client.All([]string{"account:9", "account:4"}, lock.Options{})
	account9, _ := client.Mutex("account:9", lock.Options{})
	lease, err := accounts.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holding", lease.Key())
	_, err = account9.TryLock(context.Background())
	fmt.Println("account:9 is held:", errors.Is(err, lock.ErrHeld))
	fmt.Println(lease.Unlock(context.Background()))
	// Output:
	// holding account:4, account:9
	// account:9 is held: true
	// <nil>
}

// Limit the wait, and report the holder.
func ExampleHeldError() {
	rdb, done := exampleRedis()
	defer done()
	a, _ := lock.New(rdb, lock.Config{Owner: "billing-7"})
	defer a.Close()
	b, _ := lock.New(rdb, lock.Config{Owner: "billing-8"})
	defer b.Close()

	mine, _ := a.Mutex("orders:4711", lock.Options{})
	yours, _ := b.Mutex("orders:4711", lock.Options{})
	if _, err := mine.Lock(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := yours.Lock(ctx)

	var held *lock.HeldError
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(errors.As(err, &held) && held.Owner() == "billing-7")
	// Output:
	// true
	// true
}

// Long work keeps its lease by renewal, and stops if the lease is lost.
func ExampleLease_Context() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()

	report, _ := client.Mutex("report:weekly", lock.Options{TTL: time.Second, Renew: lock.Renew{Every: 50 * time.Millisecond}})
	lease, err := report.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb.Del(context.Background(), "report:weekly") // another client deletes the key
	<-lease.Context().Done()                       // the next renewal detects it
	fmt.Println(context.Cause(lease.Context()))
	// Output: lease was lost
}

// The owner acquires the lock again in a function that it calls.
func ExampleClient_Reentrant() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()

	owner, _ := client.Reentrant("orders:4711", lock.Options{})
	outer, err := owner.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	inner, err := owner.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	count := func() string { return rdb.HGet(context.Background(), "orders:4711", outer.Token()).Val() }
	fmt.Println("entered", count())
	_ = inner.Unlock(context.Background())
	fmt.Println("entered", count())
	_ = outer.Unlock(context.Background())
	fmt.Println("keys left:", rdb.DBSize(context.Background()).Val())
	// Output:
	// entered 2
	// entered 1
	// keys left: 0
}

// Many owners read together. A writer may keep reading when it unlocks.
func ExampleClient_RW() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()
	ctx := context.Background()

	myReader, myWriter, err := client.RW("rates:eur", lock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	yourReader, _, _ := client.RW("rates:eur", lock.Options{}) // another owner
	write, err := myWriter.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = yourReader.TryLock(ctx)
	fmt.Println("you read while I write:", err == nil)

	read, err := myReader.Lock(ctx) // no other writer gets in between
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = write.Unlock(ctx)
	_, err = yourReader.TryLock(ctx)
	fmt.Println("you read while I read:", err == nil)

	_, err = myWriter.TryLock(ctx)
	fmt.Println("I write while I read:", err)
	_ = read.Unlock(ctx)
	// Output:
	// you read while I write: false
	// you read while I read: true
	// I write while I read: lock: acquire "rates:eur": a reader cannot become the writer: unlock, lock for writing, and read again
}

// Waiters get the lock in order of arrival.
func ExampleClient_Fair() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()

	printer, _ := client.Fair("printer:ground-floor", lock.Options{})
	lease, err := printer.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan string)
	for i, name := range []string{"anna", "ben", "carl"} {
		go func() {
			next, err := printer.Lock(context.Background())
			if err != nil {
				fmt.Println(err)
				return
			}
			served <- name
			_ = next.Unlock(context.Background())
		}()
		for rdb.ZCard(context.Background(), "{printer:ground-floor}:waiters").Val() <= int64(i) {
			time.Sleep(time.Millisecond)
		}
	}
	_ = lease.Unlock(context.Background())
	fmt.Println(<-served, <-served, <-served)
	// Output: anna ben carl
}

// At most two programs use the converter. A third one is allowed later.
func ExampleSemaphore() {
	rdb, done := exampleRedis()
	defer done()
	client, _ := lock.New(rdb, lock.Config{})
	defer client.Close()
	ctx := context.Background()

	converter, _ := client.Semaphore("converter", 2, lock.Options{})
	for range 3 {
		_, err := converter.TryLock(ctx)
		fmt.Println("converting:", err == nil)
	}
	if err := converter.SetLimit(ctx, 3); err != nil {
		fmt.Println(err)
		return
	}
	permit, err := converter.TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("converting:", permit.Valid())
	inUse, limit, _ := converter.Permits(ctx)
	fmt.Println(inUse, "of", limit)
	if err := converter.SetLimit(ctx, 0); err != nil {
		fmt.Println(err)
	}
	// Output:
	// converting: true
	// converting: true
	// converting: false
	// converting: true
	// 3 of 3
}
