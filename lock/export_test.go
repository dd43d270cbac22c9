package lock

import (
	"context"
	"time"

	"locktop/lock/internal/transport"
)

// Scatter has the lock of [Client.All] treat its keys as if each were in a slot of its own.
func Scatter(l Locker) Locker {
	if a, ours := l.(*all); ours {
		a.protocol.group(func(key string) string { return key })
	}
	return l
}

// DelaySubscriptions has c wait before it sends a SUBSCRIBE or an UNSUBSCRIBE, as on a
// machine that is busy. c must not have been used.
func (c *Client) DelaySubscriptions(delay func() time.Duration) {
	c.core.transport = slowTransport{c.core.transport, delay}
}

type slowTransport struct {
	transport.Transport
	delay func() time.Duration
}

func (t slowTransport) Subscribe(ctx context.Context) transport.Subscriber {
	return slowSubscriber{t.Transport.Subscribe(ctx), t.delay}
}

type slowSubscriber struct {
	transport.Subscriber
	delay func() time.Duration
}

func (s slowSubscriber) Subscribe(ctx context.Context, channels ...string) error {
	time.Sleep(s.delay())
	return s.Subscriber.Subscribe(ctx, channels...)
}

func (s slowSubscriber) Unsubscribe(ctx context.Context, channels ...string) error {
	time.Sleep(s.delay())
	return s.Subscriber.Unsubscribe(ctx, channels...)
}
