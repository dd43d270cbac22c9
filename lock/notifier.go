package lock

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/internal/transport"
)

// notifier owns the connection on which a core receives messages. The first waiter
// opens it. It has one [waitQueue] for each lock that the process waits for: the only one of its
// channels, until it had no user for unsubscribeDelay.
//
// The requests are sent in the order of the steps: behind the UNSUBSCRIBE of a queue follows the
// SUBSCRIBE of the next one of that channel. The confirmation of an earlier SUBSCRIBE may make the
// next queue believe that it is subscribed. The confirmation of its own then wakes its first
// waiter, so a message that it missed in between does no harm.
type notifier struct {
	core *core

	mu        sync.Mutex
	queues    map[string]*waitQueue // by channel: those that are used or idle
	requests  []subscriptionRequest // to be sent by listen, in this order
	requested chan struct{}         // capacity 1: there are requests
	started   bool                  // listen runs
}

// subscriptionRequest is a SUBSCRIBE or an UNSUBSCRIBE.
type subscriptionRequest struct {
	subscribe bool
	channels  []string
}

func (n *notifier) init(c *core) {
	n.core = c
	n.queues = make(map[string]*waitQueue)
	n.requested = make(chan struct{}, 1)
}

// use returns the queue of a channel and counts the caller as a user. processChannel is
// the channel for messages to this process only, which the channel determines; empty =
// there are none.
func (n *notifier) use(channel, processChannel string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[channel]
	if q == nil {
		q = &waitQueue{channel: channel, processChannel: processChannel}
		for _, channel := range q.channels() {
			n.queues[channel] = q
		}
		n.request(true, q)
	}
	q.users++
	if !n.started {
		n.started = true
		n.core.workers.Go(n.listen)
	}
	return q
}

// reuse returns the queue of a process channel if its subscriptions are confirmed, and
// counts the caller as a user; else nil.
func (n *notifier) reuse(processChannel string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[processChannel]
	if q == nil || !q.subscribedBoth() {
		return nil
	}
	q.users++
	return q
}

// unsubscribeDelay is how long an idle queue stays subscribed: the next user of a
// contended lock often comes soon.
const unsubscribeDelay = time.Second

// endUse ends a use of q.
func (n *notifier) endUse(q *waitQueue) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.users--
	switch {
	case q.users > 0 || n.core.alive.Err() != nil:
	case q.idleTimer == nil:
		q.idleSince = time.Now()
		q.idleTimer = time.AfterFunc(unsubscribeDelay, func() { n.dropIdle(q) })
	default:
		q.idleSince = time.Now()
		q.idleTimer.Reset(unsubscribeDelay)
	}
}

// dropIdle drops q if it has been idle for unsubscribeDelay. Its timer also runs if q was
// used meanwhile.
func (n *notifier) dropIdle(q *waitQueue) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.users > 0 || time.Since(q.idleSince) < unsubscribeDelay || n.queues[q.channel] != q {
		return
	}
	for _, channel := range q.channels() {
		delete(n.queues, channel)
	}
	q.close()
	n.request(false, q)
}

// request has listen subscribe to the channels of q, or unsubscribe. The caller holds
// n.mu.
func (n *notifier) request(subscribe bool, q *waitQueue) {
	if last := len(n.requests) - 1; last >= 0 && n.requests[last].subscribe == subscribe {
		n.requests[last].channels = append(n.requests[last].channels, q.channels()...)
	} else {
		n.requests = append(n.requests, subscriptionRequest{subscribe, q.channels()})
	}
	notify(n.requested)
}

// takeRequests returns the requests that are not sent yet.
func (n *notifier) takeRequests() []subscriptionRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	requests := n.requests
	n.requests = nil
	return requests
}

// listen sends the requests, and dispatches messages. go-redis reconnects and subscribes
// again by itself, and the server's confirmation arrives here.
func (n *notifier) listen() {
	s := n.core.transport.Subscribe(n.core.alive)
	// go-redis connects under a mutex. It must not begin to receive before: the connect
	// of a receiver does not end with alive, and this goroutine would wait for it.
	<-n.requested
	n.send(s)
	messages := s.Messages()
	defer func() {
		s.Close()
		for range messages { // until the goroutine of go-redis has ended; it may wait for room in the channel
		}
	}()
	for {
		select {
		case <-n.core.alive.Done():
			n.closeQueues()
			return
		case <-n.requested:
			n.send(s)
		case m, open := <-messages:
			if !open {
				n.closeQueues()
				return
			}
			n.dispatch(m)
		}
	}
}

// send sends the requests. It ignores errors: until the connection is back there are no
// messages, and waiters poll. If go-redis cannot write a SUBSCRIBE, it makes a new
// connection immediately, for the channels that it had before. It subscribes later connections to
// the new channels, too, but not that one, so send repeats the request.
func (n *notifier) send(s transport.Subscriber) {
	for _, r := range n.takeRequests() {
		if r.subscribe {
			if err := s.Subscribe(n.core.alive, r.channels...); err != nil {
				_ = s.Subscribe(n.core.alive, r.channels...)
			}
		} else {
			_ = s.Unsubscribe(n.core.alive, r.channels...)
		}
	}
}

// dispatch passes a message or a confirmation to its queue.
func (n *notifier) dispatch(m any) {
	switch m := m.(type) {
	case *redis.Message:
		n.onMessage(m.Channel, m.Payload)
	case *redis.Subscription:
		if q := n.queue(m.Channel); q != nil && m.Kind == "subscribe" {
			q.onSubscribed(m.Channel)
		}
	}
}

// onMessage passes a message on a channel to its queue.
func (n *notifier) onMessage(channel, message string) {
	if q := n.queue(channel); q != nil {
		q.onMessage(channel, message)
	}
}

// onHandOver passes a hand-over to the waiter with token, if it is in this process. The
// first one in this process checks that another process claims the lock.
func (n *notifier) onHandOver(processChannel, token string, g grant) {
	if q := n.queue(processChannel); q != nil && !q.handTo(token, g) {
		q.watchClaim(processOf(token))
	}
}

func (n *notifier) queue(channel string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queues[channel]
}

func (n *notifier) closeQueues() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.queues {
		q.close()
		if q.idleTimer != nil {
			q.idleTimer.Stop()
		}
	}
}
