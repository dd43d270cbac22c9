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
