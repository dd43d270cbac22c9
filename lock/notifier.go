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

func (n *notifier) init(t *core) {
	n.core = t
	n.queues = make(map[string]*waitQueue)
	n.changed = make(chan struct{}, 1)
}

// acquire returns the line of a channel, counting the caller as a user. Who waits
// for a fair lock names another channel, on which this process alone listens.
func (n *notifier) acquire(channel, own string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.queues[channel]
	if l == nil {
		l = &waitQueue{channel: channel}
		n.queues[channel] = l
	}
	if l.processChannel == "" && own != "" {
		l.processChannel = own
		n.queues[own] = l
	}
	l.users++
	n.markDirty(l)
	if !n.started {
		n.started = true
		n.core.workers.Go(n.listen)
	}
	return l
}

// reuse returns the line with a channel of its own if it is listened to already,
// counting the caller as a user; nil if there is none.
func (n *notifier) reuse(own string) *waitQueue {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.queues[own]
	if l == nil || !l.subscribedBoth() {
		return nil
	}
	l.users++
	return l
}

// unsubscribeDelay is how long a line nobody uses is kept: who wanted a lock that others
// want, too, is often back soon.
const unsubscribeDelay = time.Second

// release counts a user out. The subscription ends some time after the last.
func (n *notifier) release(l *waitQueue) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.users--
	if l.users > 0 {
		return
	}
	l.idleSpells++
	if spell := l.idleSpells; n.core.alive.Err() == nil {
		time.AfterFunc(unsubscribeDelay, func() { n.unsubscribeIfIdle(l, spell) })
	}
}

// unsubscribeIfIdle gives a line up, unless it was used again since.
func (n *notifier) unsubscribeIfIdle(l *waitQueue, spell int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.users == 0 && l.idleSpells == spell {
		n.markDirty(l)
	}
}

// markDirty has the notifier's goroutine look at a line. Called with n.mu held.
func (n *notifier) markDirty(l *waitQueue) {
	if !l.dirty {
		l.dirty = true
		n.dirty = append(n.dirty, l)
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
	for _, l := range n.dirty {
		l.dirty = false
		switch {
		case l.users > 0:
			add = append(add, l.channels()[len(l.subscriptions):]...)
			l.subscriptions = l.channels()
		default:
			l.close()
			for _, channel := range l.channels() {
				delete(n.queues, channel)
			}
			drop = append(drop, l.subscriptions...)
		}
	}
	n.dirty = n.dirty[:0]
	return add, drop
}

// dispatch passes on one thing that arrived.
func (n *notifier) dispatch(m any) {
	switch m := m.(type) {
	case *redis.Message:
		if l := n.queue(m.Channel); l != nil {
			l.onMessage(m.Channel, m.Payload)
		}
	case *redis.Subscription:
		if l := n.queue(m.Channel); l != nil && m.Kind == "subscribe" {
			l.onSubscribed(m.Channel)
		}
	}
}

// handTo passes on that a fair lock was handed to a waiter, if it is one of ours.
func (n *notifier) handTo(own, token string, g grant) {
	if l := n.queue(own); l != nil && l.handTo(token, g) {
		l.onMessage(own, nextMessage) // the next one, if ours, too
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
	for _, l := range n.queues {
		l.close()
	}
}
