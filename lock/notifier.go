package lock

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifier owns the one connection on which a transport hears of releases. It
// is opened when somebody first waits.
type notifier struct {
	core *core

	mu      sync.Mutex
	queues  map[string]*waitQueue // by each channel; also those nobody uses, until they are unsubscribed
	dirty   []*waitQueue
	changed chan struct{} // dirty is not empty
	started bool
}

func (n *notifier) init(c *core) {
	n.core = c
	n.queues = make(map[string]*waitQueue)
	n.changed = make(chan struct{}, 1)
}

// acquire returns the line of a channel, counting the caller as a user. Who waits
// for a fair lock names another channel, on which this process alone listens.
func (n *notifier) acquire(channel, processChannel string) *waitQueue {
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

// reuse returns the line with a channel of its own if it is listened to already,
// counting the caller as a user; nil if there is none.
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

// unsubscribeDelay is how long a line nobody uses is kept: who wanted a lock that others
// want, too, is often back soon.
const unsubscribeDelay = time.Second

// release counts a user out. The subscription ends some time after the last.
func (n *notifier) release(q *waitQueue) {
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

// unsubscribeIfIdle gives a line up, unless it was used again since.
func (n *notifier) unsubscribeIfIdle(q *waitQueue, period int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.users == 0 && q.idlePeriods == period {
		n.markDirty(q)
	}
}

// markDirty has the notifier's goroutine look at a line. Called with n.mu held.
func (n *notifier) markDirty(q *waitQueue) {
	if !q.dirty {
		q.dirty = true
		n.dirty = append(n.dirty, q)
	}
	notify(n.changed)
}

// listen makes the subscriptions be what the lines need, and passes on what
// arrives. go-redis reconnects and subscribes anew by itself, and says so.
func (n *notifier) listen() {
	ps := n.core.transport.subscribe(n.core.alive)
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

// subscribe sends what is missing between what is and what should be. An error
// only means that we stay deaf until the connection is back: waiters poll.
func (n *notifier) subscribe(ps *redis.PubSub) {
	add, drop := n.changes()
	if len(add) > 0 {
		_ = ps.Subscribe(n.core.alive, add...)
	}
	if len(drop) > 0 {
		_ = ps.Unsubscribe(n.core.alive, drop...)
	}
}

// changes marks and returns the channels to be added and dropped.
func (n *notifier) changes() (add, drop []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.dirty {
		q.dirty = false
		switch {
		case q.users > 0:
			add = append(add, q.channels()[len(q.subscriptions):]...)
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

// dispatch passes on one thing that arrived.
func (n *notifier) dispatch(m any) {
	switch m := m.(type) {
	case *redis.Message:
		if q := n.queue(m.Channel); q != nil {
			q.onMessage(m.Channel, m.Payload)
		}
	case *redis.Subscription:
		if q := n.queue(m.Channel); q != nil && m.Kind == "subscribe" {
			q.onSubscribed(m.Channel)
		}
	}
}

// handTo passes on that a fair lock was handed to a waiter, if it is one of ours.
func (n *notifier) handTo(processChannel, token string, g grant) {
	if q := n.queue(processChannel); q != nil && q.handTo(token, g) {
		q.onMessage(processChannel, nextMessage) // the next one, if ours, too
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
