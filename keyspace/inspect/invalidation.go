package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/go-redis/v9/push"

	"locktop/keyspace"
)

// Detection of a lost connection.
const (
	pingEvery   = 2 * time.Second
	readTimeout = 3 * pingEvery
)

// invalidationConn is a connection on which a server reports changed keys: it enables
// client tracking in broadcast mode on some prefixes, and subscribes to the channels on
// which libraries publish releases. Both arrive in the order of the changes: a release
// message arrives before the invalidation of the released key.
//
// It ends with its connection. It is safe for concurrent use. It implements
// [auth.CredentialsListener] and [push.NotificationHandler].
type invalidationConn struct {
	ps            *redis.PubSub   // of its own client: every connection of that is tracked
	ready         chan struct{}   // closed when the server has accepted or refused
	ended         chan struct{}   // closed when the connection has ended
	wake          chan struct{}   // capacity 1
	alive         context.Context // ends with the connection
	stop          context.CancelFunc
	prefixes      []string // prefixes
	subscriptions []subscription

	mu          sync.Mutex
	state       connState
	changes     changes
	lastMessage time.Time // time of the last message of any kind
}

// connState is what a server permits on an invalidationConn.
type connState struct {
	outdated  bool     // the server has accepted the connection with other credentials than the present ones
	trackErr  error    // why the server does not report changes; nil = it does
	canNotify bool     // keyspace notifications report all changes, so they can replace tracking
	denied    []string // channels that the user may not subscribe to
	err       error    // why the connection has ended
}

// changes is what was received since the last drain.
type changes struct {
	keys    []string          // changed keys, in order, each once
	of      map[string]change // by key
	flushed bool              // all keys are gone
	mark    int               // the last mark that came back: everything that the server sent before it has been received
}

// change is what was received of a key. Its times are on the local clock.
type change struct {
	since    time.Time  // first report
	repeated time.Time  // last report, if there was more than one
	released time.Time  // first message that the lock was released; zero = none
	toWaiter bool       // a message was published to one waiter only
	evicted  bool       // the server evicted the key
	ahead    *candidate // the key as it was read after these reports, as far as it was; nil = it was not
}

// add adds a change of a key.
func (c *changes) add(key string, more change) {
	was, known := c.of[key]
	if known {
		more.repeated = keyspace.Later(keyspace.Later(was.repeated, more.repeated), keyspace.Later(was.since, more.since))
		more.since = keyspace.Earliest(was.since, more.since)
		more.released = keyspace.Earliest(was.released, more.released)
		more.ahead = cmp.Or(more.ahead, was.ahead)
		more.toWaiter, more.evicted = more.toWaiter || was.toWaiter, more.evicted || was.evicted
	} else {
		c.keys = append(c.keys, key)
	}
	if c.of == nil {
		c.of = make(map[string]change)
	}
	c.of[key] = more
}

// reports returns how many changes of a key were reported: none, one, or two for more.
func (c *changes) reports(key string) int {
	switch was, reported := c.of[key]; {
	case !reported:
		return 0
	case was.repeated.IsZero():
		return 1
	default:
		return 2
	}
}

// dialInvalidations connects to the server of a client as the same user. It returns at
// once; ready is closed when the server has answered. It sends to wake then, and when it has
// received changes or has ended.
func dialInvalidations(o *redis.Options, prefixes []string, wanted []subscription, wake chan struct{}) *invalidationConn {
	ctx, stop := context.WithCancel(context.Background())
	c := &invalidationConn{
		ready: make(chan struct{}), ended: make(chan struct{}), wake: wake,
		alive: ctx, stop: stop, prefixes: prefixes, subscriptions: wanted, lastMessage: time.Now(),
	}
	rdb := redis.NewClient(trackedOptions(c, o))
	// The only possible error is a second registration.
	_ = rdb.RegisterPushNotificationHandler("invalidate", c, false)
	c.ps = rdb.Subscribe(ctx)
	go func() {
		defer c.notify() // when closedWith knows it
		defer close(c.ended)
		defer rdb.Close()
		c.run(ctx)
	}()
	return c
}

// trackedOptions returns the options of the client of c, with tracking from the begin of each
// connection.
func trackedOptions(c *invalidationConn, o *redis.Options) *redis.Options {
	return &redis.Options{
		Network: o.Network, Addr: o.Addr, Dialer: closingDialer(c.alive, o.Dialer), TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, DB: o.DB,
		CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: credentialsFor(c, o),
		DialTimeout: o.DialTimeout, WriteTimeout: o.WriteTimeout, ReadTimeout: o.ReadTimeout,
		Protocol: 3, MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			if o.OnConnect != nil {
				if err := o.OnConnect(ctx, cn); err != nil {
					return err
				}
			}
			return track(ctx, c, cn)
		},
	}
}

// credentialsFor returns the source of the credentials of c. go-redis cannot authenticate a
// connection with subscriptions again, so a change makes the connection outdated.
func credentialsFor(c *invalidationConn, o *redis.Options) func(context.Context) (string, string, error) {
	if o.StreamingCredentialsProvider == nil {
		return o.CredentialsProviderContext
	}
	type answer struct {
		user, pass string
		err        error
	}
	return func(ctx context.Context) (user, pass string, err error) {
		answered := make(chan answer, 1)
		go func() { // Subscribe may take long and cannot be cancelled
			now, unsubscribe, err := o.StreamingCredentialsProvider.Subscribe(c)
			if err != nil {
				answered <- answer{err: err}
				return
			}
			context.AfterFunc(c.alive, func() { _ = unsubscribe() })
			user, pass := now.BasicAuth()
			answered <- answer{user, pass, nil}
		}()
		select {
		case a := <-answered:
			return a.user, a.pass, a.err
		case <-ctx.Done():
			return "", "", ctx.Err()
		}
	}
}

// OnNext implements [auth.CredentialsListener].
func (c *invalidationConn) OnNext(auth.Credentials) {
	c.update(func(s *connState) { s.outdated = true })
	c.notify()
}

// OnError implements [auth.CredentialsListener].
func (c *invalidationConn) OnError(error) {}

// covers reports whether the changes of a key are reported.
func (c *invalidationConn) covers(key string) bool {
	return slices.ContainsFunc(c.prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// current returns the present state.
func (c *invalidationConn) current() connState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// track enables tracking. Without it the connection stays open for release messages.
func track(ctx context.Context, c *invalidationConn, cn *redis.Conn) error {
	argv := []any{"client", "tracking", "on", "bcast"}
	for _, p := range c.prefixes {
		argv = append(argv, "prefix", p)
	}
	if len(c.prefixes) == 0 {
		c.update(func(s *connState) { s.trackErr = errors.New("there is no key to track yet") })
		return nil
	}
	// Where HELLO is refused, go-redis continues in RESP2. The server then accepts tracking
	// but reports nothing.
	err := cn.Do(ctx, "hello", 3).Err()
	if err == nil {
		err = cn.Do(ctx, argv...).Err()
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		const setting = "notify-keyspace-events" // without the permission for CONFIG GET they are not used
		set, setErr := cn.ConfigGet(ctx, setting).Result()
		c.update(func(s *connState) {
			s.trackErr, s.canNotify = err, setErr == nil && coversAllChanges(set[setting])
		})
		return nil
	}
	return err
}

// coversAllChanges reports whether notifications with these flags report all changes of
// the types that locks use.
func coversAllChanges(flags string) bool {
	if !strings.Contains(flags, "E") {
		return false
	}
	return strings.Contains(flags, "A") || !strings.ContainsFunc("g$lshzxe", func(r rune) bool { return !strings.ContainsRune(flags, r) })
}

// update changes the state.
func (c *invalidationConn) update(change func(s *connState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
}

// run receives until the connection ends.
func (c *invalidationConn) run(ctx context.Context) {
	defer c.stop()
	defer c.ps.Close()
	err := c.subscribe(ctx)
	close(c.ready)
	c.notify()
	if err == nil {
		watchdog := make(chan struct{})
		defer func() { c.stop(); <-watchdog }()
		go func() {
			defer close(watchdog)
			c.keepalive(ctx)
		}()
		err = c.receive(ctx)
	}
	c.update(func(s *connState) { s.err = err })
}

// subscribe opens the connection and subscribes to the channels one by one, so that a
// denied channel does not affect the others.
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

// awaitReplies receives the reply to the ping and to each subscription, in order.
func (c *invalidationConn) awaitReplies(ctx context.Context) error {
	for i := -1; i < len(c.subscriptions); {
		m, err := c.ps.ReceiveTimeout(ctx, readTimeout)
		_, refused := errors.AsType[redis.Error](err)
		switch {
		case refused && i >= 0:
			c.update(func(s *connState) { s.denied = append(s.denied, c.subscriptions[i].name) })
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

// receive processes messages until the connection fails.
func (c *invalidationConn) receive(ctx context.Context) error {
	for {
		m, err := c.ps.ReceiveTimeout(ctx, 0)
		if err != nil {
			return err
		}
		mark := 0
		if pong, ok := m.(*redis.Pong); ok {
			mark, _ = strconv.Atoi(pong.Payload) // the pings of keepalive have no payload
		}
		c.mu.Lock()
		c.lastMessage = time.Now()
		c.changes.mark = max(c.changes.mark, mark)
		c.mu.Unlock()
		if mark > 0 {
			c.notify()
		}
		if message, ok := m.(*redis.Message); ok {
			c.dispatch(message)
		}
	}
}

// keepalive sends pings, and closes the connection if the server does not answer or ctx
// ends.
func (c *invalidationConn) keepalive(ctx context.Context) {
	defer c.stop()
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

// dispatch passes a message to the handler of its subscription.
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

// notify wakes the reader of wake.
func (c *invalidationConn) notify() { wakeUp(c.wake) }

// wakeUp wakes the reader of a channel of capacity 1.
func wakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// drain returns the changes since the last call.
func (c *invalidationConn) drain() changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.changes
	c.changes = changes{}
	return received
}

// closedWith returns why the connection has ended; false while it is open.
func (c *invalidationConn) closedWith() (error, bool) {
	select {
	case <-c.ended:
		return c.current().err, true
	default:
		return nil, false
	}
}

// close closes the connection and returns when its goroutines have ended.
func (c *invalidationConn) close() {
	c.stop() // ends a blocked receive
	<-c.ended
}

// HandlePushNotification handles one invalidation message: the changed keys, or nil if the
// database was emptied.
func (c *invalidationConn) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, said []any) error {
	if len(said) < 2 {
		return fmt.Errorf("an invalidation without keys: %v", said)
	}
	now := time.Now()
	c.mu.Lock()
	keys, some := said[1].([]any)
	if !some {
		c.changes.flushed = true
	}
	for _, k := range keys {
		if key, ok := k.(string); ok {
			c.changes.add(key, change{since: now})
		}
	}
	c.lastMessage = now
	c.mu.Unlock()
	c.notify()
	return nil
}

// subscription is a channel or pattern with its handler.
type subscription struct {
	name      string
	pattern   bool
	onMessage func(c *changes, channel, payload string)
}

// releaseSubscriptions returns the subscriptions to the release channels of the formats
// and to evictions.
func releaseSubscriptions(formats []keyspace.Format, db int) []subscription {
	evictions := subscription{name: fmt.Sprintf("__keyevent@%d__:evicted", db), onMessage: func(c *changes, _, key string) {
		c.add(key, change{since: time.Now(), evicted: true})
	}}
	all := []subscription{evictions}
	for _, f := range formats {
		if f.ReleaseChannel == nil {
			continue
		}
		key, toWaiter := f.ReleaseChannel.Key, f.ReleaseChannel.ToWaiter
		all = append(all, subscription{name: f.ReleaseChannel.Pattern, pattern: true, onMessage: func(c *changes, channel, payload string) {
			if k, ok := key(channel, payload); ok {
				now := time.Now()
				c.add(k, change{since: now, released: now, toWaiter: toWaiter != nil && toWaiter(channel)})
			}
		}})
	}
	return all
}

// keyspaceEvents returns the subscription to all keyspace notifications of a database.
func keyspaceEvents(db int) subscription {
	// The documented ACL for read-only users permits this pattern.
	return subscription{name: "__keyevent@*__:*", pattern: true, onMessage: func(c *changes, channel, key string) {
		prefix := fmt.Sprintf("__keyevent@%d__:", db)
		if what, ok := strings.CutPrefix(channel, prefix); ok {
			c.add(key, change{since: time.Now(), evicted: what == "evicted"})
		}
	}}
}
