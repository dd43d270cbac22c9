package servertest

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// NewClusterClient returns a client of a cluster.
//
//go:noinline // as server.NewClient
func NewClusterClient(addrs []string) server.Client {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
}

// AddrOf returns the address of the server of a client.
//
//go:noinline // as server.NewClient
func AddrOf(rdb server.Client) string { return rdb.(*redis.Client).Options().Addr }

// ConnOf returns a connection of a client, which ends with the test.
//
//go:noinline // as server.NewClient
func ConnOf(t TB, rdb server.Client) redis.Cmdable {
	cn := rdb.(*redis.Client).Conn()
	t.Cleanup(func() { _ = cn.Close() })
	return cn
}

// Subscription is a [redis.PubSub], whose mention has the price of redis.Client.
type Subscription interface {
	Receive(ctx context.Context) (any, error)
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	ReceiveMessage(ctx context.Context) (*redis.Message, error)
	Close() error
}

// Subscribe subscribes a client to channels.
//
//go:noinline // as server.NewClient
func Subscribe(ctx context.Context, rdb server.Client, channels ...string) Subscription {
	return rdb.(*redis.Client).Subscribe(ctx, channels...)
}

// PSubscribe subscribes a client to patterns of channels.
//
//go:noinline // as server.NewClient
func PSubscribe(ctx context.Context, rdb server.Client, patterns ...string) Subscription {
	return rdb.(*redis.Client).PSubscribe(ctx, patterns...)
}

// Watch is [redis.Client.Watch].
//
//go:noinline // as server.NewClient
func Watch(ctx context.Context, rdb server.Client, f func(tx redis.Cmdable) error, keys ...string) error {
	return rdb.(*redis.Client).Watch(ctx, func(tx *redis.Tx) error { return f(tx) }, keys...)
}

// ClientForTest returns a client of a server, which ends with the test. It repeats nothing: the
// pause before a dial would outlive the bubble of a test that ends.
func ClientForTest(t TB, addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) server.Client {
	rdb := server.NewClient(addr, server.ClientOptions{Dial: dial, NoRetry: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
