package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifier owns the connection on which a core receives messages. The first waiter
// opens it.
type notifier struct {
	core *core

	mu      sync.Mutex
	queues  map[string]*waitQueue // by channel; includes unused queues until they are unsubscribed
	dirty   []*waitQueue
	changed chan struct{} // dirty is not empty
	started bool
}

func (n *notifier) init(c *core) {
	n.core = c
	n.queues = make(map[string]*waitQueue)
	n.changed = make(chan struct{}, 1)
}

// use returns the queue of a channel and counts the caller as a user. processChannel is
// the channel for messages to this process only; empty = there are none.
func (n *notifier) use(channel, processChannel string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[channel]
	if q == nil {
		q = &waitQueue{channel: channel}
		n.queues[channel] = q
	}
	if q.processChannel == "" && processChannel != "" {
		q.processChannel = processChannel
		n.queues[processChannel] = q
	}
	q.users++
	n.markDirty(q)
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

// unsubscribeDelay is how long an unused queue stays subscribed: the next user of a
// contended lock often comes soon.
const unsubscribeDelay = time.Second

// endUse ends a use of q. q is unsubscribed unsubscribeDelay after its last user.
func (n *notifier) endUse(q *waitQueue) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.users--
	if q.users > 0 {
		return
	}
	q.idlePeriods++
	if period := q.idlePeriods; n.core.alive.Err() == nil {
		time.AfterFunc(unsubscribeDelay, func() { n.unsubscribeIfIdle(q, period) })
	}
}

// unsubscribeIfIdle unsubscribes q, unless it was used again.
func (n *notifier) unsubscribeIfIdle(q *waitQueue, period int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.users == 0 && q.idlePeriods == period {
		n.markDirty(q)
	}
}

// markDirty has listen update the subscriptions of q. The caller holds n.mu.
func (n *notifier) markDirty(q *waitQueue) {
	if !q.dirty {
		q.dirty = true
		n.dirty = append(n.dirty, q)
	}
	notify(n.changed)
}

// listen subscribes to the channels that the queues need, and dispatches messages.
// go-redis reconnects and subscribes again by itself, and the server's confirmation
// arrives here.
func (n *notifier) listen() {
	ps := n.core.transport.Subscribe(n.core.alive)
	defer ps.Close()
	messages := ps.ChannelWithSubscriptions()
	for {
		select {
		case <-n.core.alive.Done():
			n.closeQueues()
			return
		case <-n.changed:
			n.subscribe(ps)
		case m, open := <-messages:
			if !open {
				n.closeQueues()
				return
			}
			n.dispatch(m)
		}
	}
}

// subscribe sends the changed subscriptions. It ignores errors: until the connection
// is back there are no messages, and waiters poll.
func (n *notifier) subscribe(ps *redis.PubSub) {
	add, drop := n.changes()
	if len(add) > 0 {
		_ = ps.Subscribe(n.core.alive, add...)
	}
	if len(drop) > 0 {
		_ = ps.Unsubscribe(n.core.alive, drop...)
	}
}

// changes returns the channels to add and to drop, and notes them as done.
func (n *notifier) changes() (add, drop []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.dirty {
		q.dirty = false
		switch {
		case q.users > 0:
			for _, channel := range q.channels() {
				if !slices.Contains(q.subscriptions, channel) {
					add = append(add, channel)
				}
			}
			q.subscriptions = q.channels()
		default:
			q.close()
			for _, channel := range q.channels() {
				delete(n.queues, channel)
			}
			drop = append(drop, q.subscriptions...)
		}
	}
	n.dirty = n.dirty[:0]
	return add, drop
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

// handTo passes a hand-over of a fair lock to the waiter with token, if it is in this
// process.
func (n *notifier) handTo(processChannel, token string, g grant) {
	if q := n.queue(processChannel); q != nil && q.handTo(token, g) {
		q.onMessage(processChannel, nextMessage) // the next waiter may be in this process, too
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
	}
}
