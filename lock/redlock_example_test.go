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

// A lock that works while fewer than half of its servers are down.
func ExampleQuorum_Redlock() {
	var servers []*server.Embedded
	var nodes []*redis.Client // in a program, of five independent servers
	for range 3 {
		e, err := server.StartEmbedded()
		if err != nil {
			panic(err)
		}
		defer e.Close()
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr()})
		defer rdb.Close()
		servers, nodes = append(servers, e), append(nodes, rdb)
	}

	quorum, err := lock.NewQuorum(nodes, lock.QuorumConfig{
		Config:      lock.Config{Owner: "billing-7"},
		NodeTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quorum.Close()
	orders, err := quorum.Redlock("orders:4711", lock.Options{TTL: 500 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}

	servers[0].Close()
	lease, err := orders.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("one server down:", lease.Valid())
	_ = lease.Unlock(context.Background())

	servers[1].Close()
	_, err = orders.Lock(context.Background())
	fmt.Println("two servers down:", errors.Is(err, lock.ErrNoQuorum))
	// Output:
	// one server down: true
	// two servers down: true
}
