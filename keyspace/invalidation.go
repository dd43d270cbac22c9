package keyspace

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/go-redis/v9/push"
)

// How an ear notices that nobody speaks to it any more.
const (
	pingEvery   = 2 * time.Second
	readTimeout = 3 * pingEvery
)

// invalidationConn is one connection on which a server tells which keys have changed: it
// asks for client tracking in broadcast mode on some prefixes, and listens to
// the channels on which libraries announce that a lock is free. Both arrive in
// the order in which they happen: a release is announced before the key is
// reported that it has freed.
//
// An ear lives as long as its connection. It is safe for concurrent use.
type invalidationConn struct {
	rdb           *redis.Client // of its own: every connection of it is tracked
	ps            *redis.PubSub
	ready         chan struct{} // closed when the server has agreed, or refused
	ended         chan struct{} // closed when the connection is over
	wake          chan struct{} // of capacity one: something was heard
	stop          context.CancelFunc
	prefixes      []string // prefixes
	subscriptions []subscription

	mu          sync.Mutex
	trackErr    error // why there is no tracking; nil: there is
	canNotify   bool  // without tracking, keyspace notifications tell as much
	denied      []string
	err         error // why it ended
	changes     changes
	lastMessage time.Time // when anything was heard at all
}

// subscription is a channel, or a pattern, that an ear wants to hear.
type subscription struct {
	name      string
	pattern   bool
	onMessage func(h *changes, channel, payload string)
}

// changes is what an ear has taken in since it was asked last.
type changes struct {
	keys     []string             // that have changed, in order, each once
	since    map[string]time.Time // when each was first told of, our clock
	repeated map[string]bool      // those of which was told more than once
	released map[string]bool      // locks whose release was announced
	toWaiter map[string]bool      // those of which it was announced to one waiter alone
	evicted  map[string]bool      // keys that the server says it threw away
	flushed  bool                 // all keys are gone
	mark     int                  // the last that came back: all that the server said before it was sent has been heard
}

// add marks a key as changed.
func (c *changes) add(key string, now time.Time) {
	if _, known := c.since[key]; known {
		addTo(&c.repeated, key)
		return
	}
	if c.since == nil {
		c.since = make(map[string]time.Time)
	}
	c.since[key] = now
	c.keys = append(c.keys, key)
}

// addTo puts a key into one of the sets.
func addTo(set *map[string]bool, key string) {
	if *set == nil {
		*set = make(map[string]bool)
	}
	(*set)[key] = true
}

// dialInvalidations connects to the server of a client, as the same user. It returns at
// once; ready tells when the server has answered.
func dialInvalidations(o *redis.Options, prefixes []string, wanted []subscription) *invalidationConn {
	ctx, stop := context.WithCancel(context.Background())
	c := &invalidationConn{
		ready: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		stop: stop, prefixes: prefixes, subscriptions: wanted, lastMessage: time.Now(),
	}
	c.rdb = redis.NewClient(c.options(o))
	// A second registration is all that it can refuse.
	_ = c.rdb.RegisterPushNotificationHandler("invalidate", invalidations{c}, false)
	c.ps = c.rdb.Subscribe(ctx)
	go c.run(ctx)
	return c
}

// options are those of the client it is to be like, on connections that are
// tracked from their beginning.
func (c *invalidationConn) options(o *redis.Options) *redis.Options {
	return &redis.Options{
		Network: o.Network, Addr: o.Addr, Dialer: o.Dialer, TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, DB: o.DB,
		CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
		DialTimeout: o.DialTimeout, WriteTimeout: o.WriteTimeout, ReadTimeout: o.ReadTimeout,
		Protocol: 3, MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			if o.OnConnect != nil {
				if err := o.OnConnect(ctx, cn); err != nil {
					return err
				}
			}
			return c.track(ctx, cn)
		},
	}
}

// track asks for the invalidations. A server that does not give them is not
// left: there may be announcements to hear.
func (c *invalidationConn) track(ctx context.Context, cn *redis.Conn) error {
	argv := []any{"client", "tracking", "on", "bcast"}
	for _, p := range c.prefixes {
		argv = append(argv, "prefix", p)
	}
	if len(c.prefixes) == 0 {
		c.setTrackErr(errors.New("nothing to track yet"))
		return nil
	}
	// go-redis goes on in RESP2 where HELLO is refused. Tracking is then agreed to as
	// well, but nothing is ever told.
	err := cn.Do(ctx, "hello", 3).Err()
	if err == nil {
		err = cn.Do(ctx, argv...).Err()
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		c.setTrackErr(err)
		c.checkNotifications(ctx, cn)
		return nil
	}
	return err
}

// checkNotifications finds out whether somebody has switched on the keyspace
// notifications that tell of all changes. Who may not ask does without.
func (c *invalidationConn) checkNotifications(ctx context.Context, cn *redis.Conn) {
	const setting = "notify-keyspace-events"
	set, err := cn.ConfigGet(ctx, setting).Result()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.canNotify = err == nil && coversAllChanges(set[setting])
}

// coversAllChanges reports whether notifications of these flags tell of all changes of the
// types that locks are stored in.
func coversAllChanges(flags string) bool {
	if !strings.Contains(flags, "E") {
		return false
	}
	return strings.Contains(flags, "A") || !strings.ContainsFunc("g$lshzxe", func(r rune) bool { return !strings.ContainsRune(flags, r) })
}

func (c *invalidationConn) setTrackErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trackErr = err
}

// run hears until the connection is over.
func (c *invalidationConn) run(ctx context.Context) {
	defer close(c.ended)
	defer c.rdb.Close()
	defer c.ps.Close()
	err := c.subscribe(ctx)
	close(c.ready)
	if err == nil {
		watchdog := make(chan struct{})
		defer func() { <-watchdog }()
		defer c.stop()
		go func() {
			defer close(watchdog)
			c.keepalive(ctx)
		}()
		err = c.receive(ctx)
	}
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.notify()
}

// subscribe opens the connection and asks for the channels, one by one: to be
// refused one does not cost the others.
func (c *invalidationConn) subscribe(ctx context.Context) error {
	if err := c.ps.Ping(ctx); err != nil {
		return err
	}
	for _, s := range c.subscriptions {
		ask := c.ps.Subscribe
		if s.pattern {
			ask = c.ps.PSubscribe
		}
		if err := ask(ctx, s.name); err != nil {
			return err
		}
	}
	return c.awaitReplies(ctx)
}

// awaitReplies takes the answers to what was asked: that of the ping, and one for each
// subscription, in order.
func (c *invalidationConn) awaitReplies(ctx context.Context) error {
	for i := -1; i < len(c.subscriptions); {
		m, err := c.ps.ReceiveTimeout(ctx, readTimeout)
		_, refused := errors.AsType[redis.Error](err)
		switch {
		case refused && i >= 0:
			c.mu.Lock()
			c.denied = append(c.denied, c.subscriptions[i].name)
			c.mu.Unlock()
		case err != nil:
			return err
		}
		if message, ok := m.(*redis.Message); ok {
			c.dispatch(message)
			continue
		}
		i++
	}
	return nil
}

// receive takes in messages until the connection fails.
func (c *invalidationConn) receive(ctx context.Context) error {
	for {
		m, err := c.ps.ReceiveTimeout(ctx, 0)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.lastMessage = time.Now()
		if pong, ok := m.(*redis.Pong); ok {
			mark, _ := strconv.Atoi(pong.Payload) // that of prove has none
			c.changes.mark = max(c.changes.mark, mark)
		}
		c.mu.Unlock()
		if message, ok := m.(*redis.Message); ok {
			c.dispatch(message)
		}
	}
}

// keepalive makes sure that somebody is at the other end, and hangs up if nobody
// is, or when ctx ends.
func (c *invalidationConn) keepalive(ctx context.Context) {
	defer c.ps.Close()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		silent := time.Since(c.lastMessage)
		c.mu.Unlock()
		if silent > readTimeout || c.ps.Ping(ctx) != nil {
			return
		}
	}
}

// dispatch hands a message to the subscription that wants it.
func (c *invalidationConn) dispatch(m *redis.Message) {
	name := m.Channel
	if m.Pattern != "" {
		name = m.Pattern
	}
	c.mu.Lock()
	for _, s := range c.subscriptions {
		if s.name == name {
			s.onMessage(&c.changes, m.Channel, m.Payload)
		}
	}
	c.mu.Unlock()
	c.notify()
}

// notify wakes whoever waits for news.
func (c *invalidationConn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// drain takes what was heard since the last call.
func (c *invalidationConn) drain() changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.changes
	c.changes = changes{}
	return h
}

// trackingError reports whether the server tells of changes, and if not, why.
func (c *invalidationConn) trackingError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trackErr
}

// notificationsUsable reports whether keyspace notifications would tell of changes, where
// there is no tracking.
func (c *invalidationConn) notificationsUsable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canNotify
}

// deniedChannels lists the channels that the user may not listen to.
func (c *invalidationConn) deniedChannels() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denied
}

// closedWith returns why the ear has ended; false while it hears.
func (c *invalidationConn) closedWith() (error, bool) {
	select {
	case <-c.ended:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err, true
	default:
		return nil, false
	}
}

// close hangs up and returns when nothing of the ear runs any more.
func (c *invalidationConn) close() {
	c.stop()
	_ = c.ps.Close() // a receive that blocks ends
	<-c.ended
}

// invalidations takes in what the server says of changed keys.
type invalidations struct{ conn *invalidationConn }

// HandlePushNotification takes one notification: the keys that have changed, or
// nil if the database was emptied.
func (i invalidations) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, said []any) error {
	if len(said) < 2 {
		return fmt.Errorf("an invalidation of nothing: %v", said)
	}
	now := time.Now()
	i.conn.mu.Lock()
	keys, some := said[1].([]any)
	if !some {
		i.conn.changes.flushed = true
	}
	for _, k := range keys {
		if key, ok := k.(string); ok {
			i.conn.changes.add(key, now)
		}
	}
	i.conn.lastMessage = now
	i.conn.mu.Unlock()
	i.conn.notify()
	return nil
}

// releaseSubscriptions are the subscriptions that hear the releases of the formats,
// and of keys that the server throws away.
func releaseSubscriptions(formats formatSet, db int) []subscription {
	evictions := subscription{name: fmt.Sprintf("__keyevent@%d__:evicted", db), onMessage: func(h *changes, _, key string) {
		addTo(&h.evicted, key)
		h.add(key, time.Now())
	}}
	all := []subscription{evictions}
	for _, f := range formats {
		if f.ReleaseChannel == nil {
			continue
		}
		key, toWaiter := f.ReleaseChannel.Key, f.ReleaseChannel.ToWaiter
		all = append(all, subscription{name: f.ReleaseChannel.Pattern, pattern: true, onMessage: func(h *changes, channel, payload string) {
			if k, ok := key(channel, payload); ok {
				addTo(&h.released, k)
				if toWaiter != nil && toWaiter(channel) {
					addTo(&h.toWaiter, k)
				}
				h.add(k, time.Now())
			}
		}})
	}
	return all
}

// keyspaceEvents is the subscription to everything that happens to keys of a
// database, where somebody had these notifications switched on.
func keyspaceEvents(db int) subscription {
	// The pattern is the one that an ACL for onlookers names.
	return subscription{name: "__keyevent@*__:*", pattern: true, onMessage: func(h *changes, channel, key string) {
		prefix := fmt.Sprintf("__keyevent@%d__:", db)
		what, ok := strings.CutPrefix(channel, prefix)
		if !ok {
			return
		}
		if what == "evicted" {
			addTo(&h.evicted, key)
		}
		h.add(key, time.Now())
	}}
}
