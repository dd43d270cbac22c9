package server

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a [redis.Client]. A package that mentions that type compiles all of its methods again,
// which takes more than a second.
type Client interface {
	redis.Cmdable
	AddHook(hook redis.Hook)
	Do(ctx context.Context, args ...any) *redis.Cmd
	Process(ctx context.Context, cmd redis.Cmder) error
	PoolStats() *redis.PoolStats
	Close() error
}

// ClientOptions are options of a client.
type ClientOptions struct {
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil = TCP
	NoRetry bool                                                              // repeat no command and no dial
	Timeout time.Duration                                                     // of a dial and of a reply; 0 = those of go-redis

	Username, Password string
	DB                 int
	Name               string // of the connections
	PoolSize           int    // 0 = that of go-redis
}

// NewClient returns a client of the server at addr.
//
//go:noinline // or its callers mention redis.Client
func NewClient(addr string, o ClientOptions) Client {
	options := redis.Options{
		Addr: addr, Username: o.Username, Password: o.Password, DB: o.DB,
		ClientName: o.Name, PoolSize: o.PoolSize,
		Dialer: o.Dial, DialTimeout: o.Timeout, ReadTimeout: o.Timeout, DisableIdentity: true,
	}
	if o.NoRetry {
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
	}
	return redis.NewClient(&options)
}

// NewClusterClient returns a client of a cluster.
//
//go:noinline // as NewClient
func NewClusterClient(addrs []string) Client {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
}

// AddrOf returns the address of the server of a client.
//
//go:noinline // as NewClient
func AddrOf(rdb Client) string { return rdb.(*redis.Client).Options().Addr }

// ConnOf returns a connection of a client, which ends with the test.
//
//go:noinline // as NewClient
func ConnOf(t TB, rdb Client) redis.Cmdable {
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
//go:noinline // as NewClient
func Subscribe(ctx context.Context, rdb Client, channels ...string) Subscription {
	return rdb.(*redis.Client).Subscribe(ctx, channels...)
}

// PSubscribe subscribes a client to patterns of channels.
//
//go:noinline // as NewClient
func PSubscribe(ctx context.Context, rdb Client, patterns ...string) Subscription {
	return rdb.(*redis.Client).PSubscribe(ctx, patterns...)
}

// Watch is [redis.Client.Watch].
//
//go:noinline // as NewClient
func Watch(ctx context.Context, rdb Client, f func(tx redis.Cmdable) error, keys ...string) error {
	return rdb.(*redis.Client).Watch(ctx, func(tx *redis.Tx) error { return f(tx) }, keys...)
}

// ClientForTest returns a client of a server, which ends with the test. It repeats nothing: the
// pause before a dial would outlive the bubble of a test that ends.
func ClientForTest(t TB, addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) Client {
	rdb := NewClient(addr, ClientOptions{Dial: dial, NoRetry: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
