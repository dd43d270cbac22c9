package servertest

import (
	"context"
	"io"
	"net"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// The functions of this file find methods of a [redis.Client] by reflection, because a mention of its
// type has a price: see [server.Client]. Each name is a constant, so that the linker keeps no other.

// AddrOf returns the address of the server of a client.
func AddrOf(rdb server.Client) string {
	return reflect.ValueOf(rdb).MethodByName("Options").Call(nil)[0].Elem().FieldByName("Addr").String()
}

// ConnOf returns a connection of a client, which ends with the test.
func ConnOf(t TB, rdb server.Client) redis.Cmdable {
	cn := reflect.ValueOf(rdb).MethodByName("Conn").Call(nil)[0].Interface()
	t.Cleanup(func() { _ = cn.(io.Closer).Close() })
	return cn.(redis.Cmdable)
}

// Subscription is a [redis.PubSub], whose mention has the price of redis.Client.
type Subscription interface {
	Receive(ctx context.Context) (any, error)
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	ReceiveMessage(ctx context.Context) (*redis.Message, error)
	Close() error
}

// Subscribe subscribes a client to channels.
func Subscribe(ctx context.Context, rdb server.Client, channels ...string) Subscription {
	return subscribe(reflect.ValueOf(rdb).MethodByName("Subscribe"), ctx, channels)
}

// PSubscribe subscribes a client to patterns of channels.
func PSubscribe(ctx context.Context, rdb server.Client, patterns ...string) Subscription {
	return subscribe(reflect.ValueOf(rdb).MethodByName("PSubscribe"), ctx, patterns)
}

func subscribe(method reflect.Value, ctx context.Context, to []string) Subscription {
	return method.CallSlice([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(to)})[0].Interface().(Subscription)
}

// Watch is [redis.Client.Watch].
func Watch(ctx context.Context, rdb server.Client, f func(tx redis.Cmdable) error, keys ...string) error {
	watch := reflect.ValueOf(rdb).MethodByName("Watch")
	body := reflect.MakeFunc(watch.Type().In(1), func(tx []reflect.Value) []reflect.Value {
		err := f(tx[0].Interface().(redis.Cmdable))
		return []reflect.Value{reflect.ValueOf(&err).Elem()}
	})
	err, _ := watch.CallSlice([]reflect.Value{reflect.ValueOf(ctx), body, reflect.ValueOf(keys)})[0].Interface().(error)
	return err
}

// ClientForTest returns a client of a server, which ends with the test. It repeats nothing: the
// pause before a dial would outlive the bubble of a test that ends.
func ClientForTest(t TB, addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) server.Client {
	rdb := server.NewClient(addr, server.ClientOptions{Dial: dial, NoRetry: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Commands is a hook of a client for its single commands.
type Commands func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook implements [redis.Hook].
func (Commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
func (h Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}
