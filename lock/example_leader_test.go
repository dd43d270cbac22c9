package lock_test

import (
	"context"
	"fmt"

	"locktop/lock"
)

// A leader publishes prices, and all hosts read them. The write lock keeps a reader from a half of
// them. The fence keeps out a leader that does not know yet that another one has taken over.
func Example_leader() {
	rdb, done := exampleRedis()
	defer done()
	client, err := lock.New(rdb, lock.Config{Owner: "shop-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	leader, err := client.Mutex("leader:prices", lock.Options{Fence: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	reader, writer, err := client.RW("prices", lock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	prices, lastTerm := map[string]int{}, int64(0)
	publish := func(term int64) error {
		if term < lastTerm {
			return fmt.Errorf("term %d has ended", term)
		}
		lastTerm = term
		prices["tea"], prices["milk"] = 3, 1
		return nil
	}
	ctx := context.Background()
	err = lock.Elect(ctx, leader, func(ctx context.Context) error { // ctx ends with the term
		term, _ := lock.LeaseFrom(ctx).Fence()
		return lock.Do(ctx, writer, func(context.Context) error { return publish(term) })
	}) // the function has returned: the leader resigns
	fmt.Println("elected:", err)
	err = lock.Do(ctx, reader, func(context.Context) error {
		fmt.Println("prices:", prices)
		return nil
	})
	fmt.Println("read:", err)
	fmt.Println("a late leader:", publish(0))
	// Output:
	// elected: <nil>
	// prices: map[milk:1 tea:3]
	// read: <nil>
	// a late leader: term 0 has ended
}
