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
	pingEvery = 2 * time.Second
	deafAfter = 3 * pingEvery
)

// ear is one connection on which a server tells which keys have changed: it
// asks for client tracking in broadcast mode on some prefixes, and listens to
// the channels on which libraries announce that a lock is free. Both arrive in
// the order in which they happen: a release is announced before the key is
// reported that it has freed.
//
// An ear lives as long as its connection. It is safe for concurrent use.
type ear struct {
	rdb    *redis.Client // of its own: every connection of it is tracked
	ps     *redis.PubSub
	ready  chan struct{} // closed when the server has agreed, or refused
	ended  chan struct{} // closed when the connection is over
	wake   chan struct{} // of capacity one: something was heard
	stop   context.CancelFunc
	asked  []string // prefixes
	wanted []subscription

	mu      sync.Mutex
	refusal error // why there is no tracking; nil: there is
	instead bool  // without tracking, keyspace notifications tell as much
	deaf    []string
	err     error // why it ended
	heard   heard
	last    time.Time // when anything was heard at all
}

// subscription is a channel, or a pattern, that an ear wants to hear.
type subscription struct {
	name    string
	pattern bool
	heard   func(h *heard, channel, payload string)
}

// heard is what an ear has taken in since it was asked last.
type heard struct {
	keys     []string             // that have changed, in order, each once
	since    map[string]time.Time // when each was first told of, our clock
	again    map[string]bool      // those of which was told more than once
	released map[string]bool      // locks whose release was announced
	toWaiter map[string]bool      // those of which it was announced to one waiter alone
	evicted  map[string]bool      // keys that the server says it threw away
	flushed  bool                 // all keys are gone
	mark     int                  // the last that came back: all that the server said before it was sent has been heard
}

// note marks a key as changed.
func (h *heard) note(key string, now time.Time) {
	if _, known := h.since[key]; known {
		mark(&h.again, key)
		return
	}
	if h.since == nil {
		h.since = make(map[string]time.Time)
	}
	h.since[key] = now
	h.keys = append(h.keys, key)
}

// mark puts a key into one of the sets.
func mark(set *map[string]bool, key string) {
	if *set == nil {
		*set = make(map[string]bool)
	}
	(*set)[key] = true
}

// listen connects to the server of a client, as the same user. It returns at
// once; ready tells when the server has answered.
func listen(o *redis.Options, prefixes []string, wanted []subscription) *ear {
	ctx, stop := context.WithCancel(context.Background())
	e := &ear{
		ready: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		stop: stop, asked: prefixes, wanted: wanted, last: time.Now(),
	}
	e.rdb = redis.NewClient(e.options(o))
	// A second registration is all that it can refuse.
	_ = e.rdb.RegisterPushNotificationHandler("invalidate", invalidations{e}, false)
	e.ps = e.rdb.Subscribe(ctx)
	go e.run(ctx)
	return e
}

// options are those of the client it is to be like, on connections that are
// tracked from their beginning.
func (e *ear) options(o *redis.Options) *redis.Options {
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
			return e.track(ctx, cn)
		},
	}
}

// track asks for the invalidations. A server that does not give them is not
// left: there may be announcements to hear.
func (e *ear) track(ctx context.Context, cn *redis.Conn) error {
	argv := []any{"client", "tracking", "on", "bcast"}
	for _, p := range e.asked {
		argv = append(argv, "prefix", p)
	}
	if len(e.asked) == 0 {
		e.refuse(errors.New("nothing to track yet"))
		return nil
	}
	// go-redis goes on in RESP2 where HELLO is refused. Tracking is then agreed to as
	// well, but nothing is ever told.
	err := cn.Do(ctx, "hello", 3).Err()
	if err == nil {
		err = cn.Do(ctx, argv...).Err()
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		e.refuse(err)
		e.lookForNotifications(ctx, cn)
		return nil
	}
	return err
}

// lookForNotifications finds out whether somebody has switched on the keyspace
// notifications that tell of all changes. Who may not ask does without.
func (e *ear) lookForNotifications(ctx context.Context, cn *redis.Conn) {
	const setting = "notify-keyspace-events"
	set, err := cn.ConfigGet(ctx, setting).Result()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.instead = err == nil && tellAll(set[setting])
}

// tellAll reports whether notifications of these flags tell of all changes of the
// types that locks are stored in.
func tellAll(flags string) bool {
	if !strings.Contains(flags, "E") {
		return false
	}
	return strings.Contains(flags, "A") || !strings.ContainsFunc("g$lshzxe", func(r rune) bool { return !strings.ContainsRune(flags, r) })
}

func (e *ear) refuse(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusal = err
}

// run hears until the connection is over.
func (e *ear) run(ctx context.Context) {
	defer close(e.ended)
	defer e.rdb.Close()
	defer e.ps.Close()
	err := e.subscribe(ctx)
	close(e.ready)
	if err == nil {
		watchdog := make(chan struct{})
		defer func() { <-watchdog }()
		defer e.stop()
		go func() {
			defer close(watchdog)
			e.prove(ctx)
		}()
		err = e.hear(ctx)
	}
	e.mu.Lock()
	e.err = err
	e.mu.Unlock()
	e.alert()
}

// subscribe opens the connection and asks for the channels, one by one: to be
// refused one does not cost the others.
func (e *ear) subscribe(ctx context.Context) error {
	if err := e.ps.Ping(ctx); err != nil {
		return err
	}
	for _, s := range e.wanted {
		ask := e.ps.Subscribe
		if s.pattern {
			ask = e.ps.PSubscribe
		}
		if err := ask(ctx, s.name); err != nil {
			return err
		}
	}
	return e.await(ctx)
}

// await takes the answers to what was asked: that of the ping, and one for each
// subscription, in order.
func (e *ear) await(ctx context.Context) error {
	for i := -1; i < len(e.wanted); {
		m, err := e.ps.ReceiveTimeout(ctx, deafAfter)
		_, refused := errors.AsType[redis.Error](err)
		switch {
		case refused && i >= 0:
			e.mu.Lock()
			e.deaf = append(e.deaf, e.wanted[i].name)
			e.mu.Unlock()
		case err != nil:
			return err
		}
		if message, ok := m.(*redis.Message); ok {
			e.take(message)
			continue
		}
		i++
	}
	return nil
}

// hear takes in messages until the connection fails.
func (e *ear) hear(ctx context.Context) error {
	for {
		m, err := e.ps.ReceiveTimeout(ctx, 0)
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.last = time.Now()
		if pong, ok := m.(*redis.Pong); ok {
			mark, _ := strconv.Atoi(pong.Payload) // that of prove has none
			e.heard.mark = max(e.heard.mark, mark)
		}
		e.mu.Unlock()
		if message, ok := m.(*redis.Message); ok {
			e.take(message)
		}
	}
}

// prove makes sure that somebody is at the other end, and hangs up if nobody
// is, or when ctx ends.
func (e *ear) prove(ctx context.Context) {
	defer e.ps.Close()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		silent := time.Since(e.last)
		e.mu.Unlock()
		if silent > deafAfter || e.ps.Ping(ctx) != nil {
			return
		}
	}
}

// take hands a message to the subscription that wants it.
func (e *ear) take(m *redis.Message) {
	name := m.Channel
	if m.Pattern != "" {
		name = m.Pattern
	}
	e.mu.Lock()
	for _, s := range e.wanted {
		if s.name == name {
			s.heard(&e.heard, m.Channel, m.Payload)
		}
	}
	e.mu.Unlock()
	e.alert()
}

// alert wakes whoever waits for news.
func (e *ear) alert() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// news takes what was heard since the last call.
func (e *ear) news() heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.heard
	e.heard = heard{}
	return h
}

// tracking reports whether the server tells of changes, and if not, why.
func (e *ear) tracking() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusal
}

// notified reports whether keyspace notifications would tell of changes, where
// there is no tracking.
func (e *ear) notified() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.instead
}

// silent lists the channels that the user may not listen to.
func (e *ear) silent() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deaf
}

// over returns why the ear has ended; false while it hears.
func (e *ear) over() (error, bool) {
	select {
	case <-e.ended:
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.err, true
	default:
		return nil, false
	}
}

// close hangs up and returns when nothing of the ear runs any more.
func (e *ear) close() {
	e.stop()
	_ = e.ps.Close() // a receive that blocks ends
	<-e.ended
}

// invalidations takes in what the server says of changed keys.
type invalidations struct{ ear *ear }

// HandlePushNotification takes one notification: the keys that have changed, or
// nil if the database was emptied.
func (i invalidations) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, said []any) error {
	if len(said) < 2 {
		return fmt.Errorf("an invalidation of nothing: %v", said)
	}
	now := time.Now()
	i.ear.mu.Lock()
	keys, some := said[1].([]any)
	if !some {
		i.ear.heard.flushed = true
	}
	for _, k := range keys {
		if key, ok := k.(string); ok {
			i.ear.heard.note(key, now)
		}
	}
	i.ear.last = now
	i.ear.mu.Unlock()
	i.ear.alert()
	return nil
}

// announcements are the subscriptions that hear the releases of the formats,
// and of keys that the server throws away.
func announcements(formats catalogue, db int) []subscription {
	evictions := subscription{name: fmt.Sprintf("__keyevent@%d__:evicted", db), heard: func(h *heard, _, key string) {
		mark(&h.evicted, key)
		h.note(key, time.Now())
	}}
	all := []subscription{evictions}
	for _, f := range formats {
		if f.ReleaseChannel == nil {
			continue
		}
		key, toWaiter := f.ReleaseChannel.Key, f.ReleaseChannel.ToWaiter
		all = append(all, subscription{name: f.ReleaseChannel.Pattern, pattern: true, heard: func(h *heard, channel, payload string) {
			if k, ok := key(channel, payload); ok {
				mark(&h.released, k)
				if toWaiter != nil && toWaiter(channel) {
					mark(&h.toWaiter, k)
				}
				h.note(k, time.Now())
			}
		}})
	}
	return all
}

// keyspaceEvents is the subscription to everything that happens to keys of a
// database, where somebody had these notifications switched on.
func keyspaceEvents(db int) subscription {
	// The pattern is the one that an ACL for onlookers names.
	return subscription{name: "__keyevent@*__:*", pattern: true, heard: func(h *heard, channel, key string) {
		prefix := fmt.Sprintf("__keyevent@%d__:", db)
		what, ok := strings.CutPrefix(channel, prefix)
		if !ok {
			return
		}
		if what == "evicted" {
			mark(&h.evicted, key)
		}
		h.note(key, time.Now())
	}}
}
