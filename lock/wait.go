package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How waiting works. The callers of Lock through one client stand in a turn per
// key, and only the first of them talks to the server. The first ones of all
// identities on a transport stand in a line per key. A line listens on the
// lock's channel, and what it hears (a release, a reconnect, the holder's
// deadline) wakes its front alone: a message to a process makes one attempt,
// not a herd. Order is kept inside a process only.

// foreignPoll is how often to look at a lock whose holder will not tell when it
// is done: one of another library, or any while we cannot listen.
const foreignPoll = 250 * time.Millisecond

// While the server cannot be reached, it is tried this often at first and at
// last.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// stand tries once, and stands in line after that until the lock is ours or ctx
// ends.
func (t *target) stand(ctx context.Context, r *request, turn *turn) (*Lease, error) {
	line, me := turn.rejoin() // first, so that no news is missed between the attempt and the queue
	lease, err := r.try(ctx, r)
	if line == nil && errors.Is(err, ErrHeld) {
		line, me = turn.join(&t.client.notifier, t.form.channel())
	}
	if line == nil {
		return lease, err
	}
	held, backoff := err, minBackoff
	for waited := false; err != nil && (errors.Is(err, ErrHeld) || waited && transient(err)); waited = true {
		if errors.Is(err, ErrHeld) {
			held, backoff = err, minBackoff
		}
		line.retryIn(r.glanceBy(pause(err, line.hears(), backoff)))
		if err = t.hark(ctx, me); err != nil {
			err = fmt.Errorf("lock: wait for %q: %w: %w", t.key, held, err)
			break
		}
		lease, err = r.try(ctx, r)
		backoff = min(2*backoff, maxBackoff)
	}
	if err == nil {
		line.retryIn(r.glanceBy(pause(&HeldError{Token: lease.Token(), TTL: t.opts.TTL}, line.hears(), 0)))
	}
	line.leave(me, err == nil && !r.shared)
	return lease, err
}

// hark waits for news. It prefers to end.
func (t *target) hark(ctx context.Context, news chan struct{}) error {
	select {
	case <-news:
	case <-ctx.Done():
	case <-t.client.closed.Done():
	}
	return endOf(ctx, t.client.closed)
}

// glanceBy returns a pause that is not too long for the request.
func (r *request) glanceBy(pause time.Duration) time.Duration {
	if r.glance > 0 {
		return min(pause, r.glance)
	}
	return pause
}

// pause returns how long to leave the server alone after an attempt that ended
// with err, unless there is news. A holder of ours announces its release, so
// there is nothing to see before its lease is over.
func pause(err error, hears bool, backoff time.Duration) time.Duration {
	var held *HeldError
	if !errors.As(err, &held) {
		return backoff
	}
	_, ours := tokenOwner(held.Token)
	switch {
	case held.TTL < 0:
		return foreignPoll
	case ours && hears:
		return held.TTL + time.Millisecond
	default:
		return min(held.TTL+time.Millisecond, foreignPoll)
	}
}

// turns let one goroutine at a time through, for each key, in order of arrival.
type turns struct {
	mu    sync.Mutex
	byKey map[string]*turn
}

// turn is the place where goroutines of one identity wait for one key.
type turn struct {
	key    string
	free   chan struct{} // capacity 1: empty = nobody is at the front
	guests int           // guarded by turns.mu
	ears   *notifier     // set, with line, by whoever is at the front
	line   *line
}

// take waits until it is the caller's turn.
func (ts *turns) take(ctx, closed context.Context, key string) (*turn, error) {
	t := ts.enter(key)
	select {
	case t.free <- struct{}{}:
		return t, nil
	case <-ctx.Done():
	case <-closed.Done():
	}
	ts.quit(t)
	return nil, endOf(ctx, closed)
}

// give lets the next one through.
func (ts *turns) give(t *turn) {
	<-t.free
	ts.quit(t)
}

func (ts *turns) enter(key string) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byKey[key]
	if t == nil {
		if ts.byKey == nil {
			ts.byKey = make(map[string]*turn)
		}
		t = &turn{key: key, free: make(chan struct{}, 1)}
		ts.byKey[key] = t
	}
	t.guests++
	return t
}

func (ts *turns) quit(t *turn) {
	ts.mu.Lock()
	t.guests--
	last := t.guests == 0
	if last {
		delete(ts.byKey, t.key)
	}
	ts.mu.Unlock()
	if last && t.line != nil {
		t.ears.release(t.line)
	}
}

// rejoin stands in the line that an earlier guest has opened; nil if none has.
// A line is kept until the last guest has gone, so that a busy key is not
// subscribed to over and over.
func (t *turn) rejoin() (*line, chan struct{}) {
	if t.line == nil {
		return nil, nil
	}
	return t.line, t.line.join()
}

// join opens the line of the key and stands in it.
func (t *turn) join(n *notifier, channel string) (*line, chan struct{}) {
	t.ears, t.line = n, n.acquire(channel)
	me := t.line.join()
	if t.line.hears() {
		wake(me) // for others it listens already: what came before we joined, we have missed
	}
	return t.line, me
}

// line is where the first ones of all identities wait for one key.
type line struct {
	channel string
	users   int  // guarded by notifier.mu, like the next two
	asked   bool // SUBSCRIBE was sent
	dirty   bool // users and asked may disagree

	mu     sync.Mutex
	queue  []chan struct{} // one per waiter; the front is woken first
	timer  *time.Timer
	heard  bool // the server has confirmed the subscription
	closed bool
}

// join puts the caller at the end; the channel it gets becomes ready when it is
// time to try.
func (l *line) join() chan struct{} {
	me := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, me)
	return me
}

// leave takes the caller out. Unless it has the lock for itself now, the next
// one is woken to see for itself: the caller may have taken news with it.
func (l *line) leave(me chan struct{}, won bool) {
	l.mu.Lock()
	l.queue = slices.DeleteFunc(l.queue, func(c chan struct{}) bool { return c == me })
	l.mu.Unlock()
	if !won || len(me) > 0 {
		l.news()
	}
}

// news wakes the front.
func (l *line) news() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		wake(l.queue[0])
	}
}

// confirmed notes that from now on nothing is missed; the front looks whether
// something was.
func (l *line) confirmed() {
	l.mu.Lock()
	l.heard = true
	l.mu.Unlock()
	l.news()
}

func (l *line) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// retryIn wakes the front after d, unless told otherwise meanwhile.
func (l *line) retryIn(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.news)
	default:
		l.timer.Reset(d)
	}
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// notifier owns the one connection on which a transport hears of releases. It
// is opened when somebody first waits.
type notifier struct {
	t *transport

	mu      sync.Mutex
	lines   map[string]*line // also those nobody uses, until they are unsubscribed
	dirty   []*line
	changed chan struct{} // dirty is not empty
	started bool
}

func (n *notifier) init(t *transport) {
	n.t = t
	n.lines = make(map[string]*line)
	n.changed = make(chan struct{}, 1)
}

// acquire returns the line of a channel, counting the caller as a user.
func (n *notifier) acquire(channel string) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lines[channel]
	if l == nil {
		l = &line{channel: channel}
		n.lines[channel] = l
	}
	l.users++
	n.touch(l)
	if !n.started {
		n.started = true
		n.t.workers.Go(n.listen)
	}
	return l
}

// release counts a user out. The subscription ends with the last.
func (n *notifier) release(l *line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.users--
	n.touch(l)
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
		case l.users > 0 && !l.asked:
			l.asked = true
			add = append(add, l.channel)
		case l.users == 0:
			l.close()
			delete(n.lines, l.channel)
			if l.asked {
				drop = append(drop, l.channel)
			}
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
			l.news()
		}
	case *redis.Subscription:
		if l := n.line(m.Channel); l != nil && m.Kind == "subscribe" {
			l.confirmed()
		}
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
