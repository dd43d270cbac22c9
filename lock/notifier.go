package lock

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifier owns the one connection on which a transport hears of releases. It
// is opened when somebody first waits.
type notifier struct {
	t *transport

	mu      sync.Mutex
	lines   map[string]*line // by each channel; also those nobody uses, until they are unsubscribed
	dirty   []*line
	changed chan struct{} // dirty is not empty
	started bool
}

func (n *notifier) init(t *transport) {
	n.t = t
	n.lines = make(map[string]*line)
	n.changed = make(chan struct{}, 1)
}

// acquire returns the line of a channel, counting the caller as a user. Who waits
// for a fair lock names another channel, on which this process alone listens.
func (n *notifier) acquire(channel, own string) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lines[channel]
	if l == nil {
		l = &line{channel: channel}
		n.lines[channel] = l
	}
	if l.own == "" && own != "" {
		l.own = own
		n.lines[own] = l
	}
	l.users++
	n.touch(l)
	if !n.started {
		n.started = true
		n.t.workers.Go(n.listen)
	}
	return l
}

// rejoin returns the line with a channel of its own if it is listened to already,
// counting the caller as a user; nil if there is none.
func (n *notifier) rejoin(own string) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lines[own]
	if l == nil || !l.hearsNames() {
		return nil
	}
	l.users++
	return l
}

// linger is how long a line nobody uses is kept: who wanted a lock that others
// want, too, is often back soon.
const linger = time.Second

// release counts a user out. The subscription ends some time after the last.
func (n *notifier) release(l *line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.users--
	if l.users > 0 {
		return
	}
	l.unused++
	if spell := l.unused; n.t.alive.Err() == nil {
		time.AfterFunc(linger, func() { n.retire(l, spell) })
	}
}

// retire gives a line up, unless it was used again since.
func (n *notifier) retire(l *line, spell int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.users == 0 && l.unused == spell {
		n.touch(l)
	}
}

// touch has the notifier's goroutine look at a line. Called with n.mu held.
func (n *notifier) touch(l *line) {
	if !l.dirty {
		l.dirty = true
		n.dirty = append(n.dirty, l)
	}
	wake(n.changed)
}

// listen makes the subscriptions be what the lines need, and passes on what
// arrives. go-redis reconnects and subscribes anew by itself, and says so.
func (n *notifier) listen() {
	ps := n.t.wire.subscriber(n.t.alive)
	defer ps.Close()
	messages := ps.ChannelWithSubscriptions()
	for {
		select {
		case <-n.t.alive.Done():
			n.closeLines()
			return
		case <-n.changed:
			n.subscribe(ps)
		case m, open := <-messages:
			if !open {
				n.closeLines()
				return
			}
			n.hear(m)
		}
	}
}

// subscribe sends what is missing between what is and what should be. An error
// only means that we stay deaf until the connection is back: waiters poll.
func (n *notifier) subscribe(ps *redis.PubSub) {
	add, drop := n.pending()
	if len(add) > 0 {
		_ = ps.Subscribe(n.t.alive, add...)
	}
	if len(drop) > 0 {
		_ = ps.Unsubscribe(n.t.alive, drop...)
	}
}

// pending marks and returns the channels to be added and dropped.
func (n *notifier) pending() (add, drop []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.dirty {
		l.dirty = false
		switch {
		case l.users > 0:
			add = append(add, l.channels()[len(l.asked):]...)
			l.asked = l.channels()
		default:
			l.close()
			for _, channel := range l.channels() {
				delete(n.lines, channel)
			}
			drop = append(drop, l.asked...)
		}
	}
	n.dirty = n.dirty[:0]
	return add, drop
}

// hear passes on one thing that arrived.
func (n *notifier) hear(m any) {
	switch m := m.(type) {
	case *redis.Message:
		if l := n.line(m.Channel); l != nil {
			l.hear(m.Channel, m.Payload)
		}
	case *redis.Subscription:
		if l := n.line(m.Channel); l != nil && m.Kind == "subscribe" {
			l.confirmed(m.Channel)
		}
	}
}

// hand passes on that a fair lock was handed to a waiter, if it is one of ours.
func (n *notifier) hand(own, token string, g grant) {
	if l := n.line(own); l != nil && l.hand(token, g) {
		l.hear(own, nextInLine) // the next one, if ours, too
	}
}

func (n *notifier) line(channel string) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lines[channel]
}

func (n *notifier) closeLines() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		l.close()
	}
}
