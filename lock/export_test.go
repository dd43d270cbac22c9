package lock

import (
	"context"
	"time"

	"locktop/lock/internal/transport"
)

// Scatter has the All treat its keys as if each were in a slot of its own.
func (a *All) Scatter() *All {
	a.protocol.group(func(key string) string { return key })
	return a
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

// FixRandom makes all random durations the middle of their range until restore is called. No
// other test may run meanwhile.
func FixRandom() (restore func()) {
	before := random
	random = func(n time.Duration) time.Duration { return n / 2 }
	return func() { random = before }
}

// Scripts returns all scripts.
func Scripts() (sources []string) {
	for _, s := range []*script{
		mutexScripts.acquire, mutexScripts.extend, mutexScripts.release, mutexScripts.peek,
		reentrantScripts.acquire, reentrantScripts.extend, reentrantScripts.release, reentrantScripts.peek,
		semaphoreScripts.acquire, semaphoreScripts.extend, semaphoreScripts.release, semaphoreScripts.peek,
		fairAcquire, fairRelease, fairHeartbeat, allAcquireScript, allExtendScript, allReleaseScript,
		rwRead, rwWrite, rwExtend, rwRelease, rwWithdraw, rwPeek, redlockRaise,
	} {
		sources = append(sources, s.source)
	}
	return sources
}
