package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
	"locktop/lock/classic"
)

// session locks for one client, which alone can unlock what it locked. It is an
// interface because the historic forms have their own leases, and because tests run the
// oracle on broken forms.
type session interface {
	// as returns a session with another identity over the same connections.
	as(clientIdentity) session
	// lock waits until the client holds the keys, or until ctx ends. Only the kind all
	// has more than one. A shared lock is for reading only.
	lock(ctx context.Context, keys []string, shared bool) (*lease, error)
	// close releases the held leases. On the base session, it also closes the shared
	// connections.
	close() error
}

// lease is a lock that a client holds: what its library says of it, in one form for all libraries.
type lease struct {
	lives
	token string
	fence int64
	first time.Time // when the lease of the first of several entries began, zero if there is only one
	inner []*lease  // the further entries of the client, which it leaves first
	left  func()    // called after it has left one of them; nil: nobody asks

	unlock  func(context.Context) error                // returns lock.ErrLost if the lease was over
	again   func(context.Context) (*lease, error)      // enters the lock once more
	extend  func(context.Context, time.Duration) error // nil: impossible
	kept    func() bool                                // whether the holder had the lock until now, as far as it knows
	latest  func() time.Time                           // see [oracle.Lease]
	decided func() time.Time                           // when the holder last read the lock before it deletes it; nil: when it unlocks
}

// lives is the part of a lease that changes without its holder.
type lives interface {
	Valid() bool
	Deadline() time.Time
	// Context ends with the lease. If the lock does not notify its holder, it never ends.
	Context() context.Context
}

// Latest implements [oracle.Lease].
func (l *lease) Latest() time.Time { return l.latest() }

// enter enters the lock again, until it is entered as often as s says. If an entry fails, it
// unlocks all of them.
func (l *lease) enter(ctx context.Context, s *Scenario) error {
	if s.Depth > 1 {
		l.first = l.Deadline().Add(-s.Lock.TTL)
	}
	for range s.Depth - 1 {
		inner, err := l.again(ctx)
		if err != nil {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
			defer cancel()
			return errors.Join(fmt.Errorf("enter again: %w", err), l.release(bounded))
		}
		l.inner = append(l.inner, inner)
	}
	return nil
}

// release leaves the further entries, then the first one.
func (l *lease) release(ctx context.Context) error {
	return errors.Join(l.leave(ctx), l.unlock(ctx))
}

// leave leaves the further entries, the last one first, until an error.
func (l *lease) leave(ctx context.Context) error {
	for len(l.inner) > 0 {
		last := l.inner[len(l.inner)-1]
		l.inner = l.inner[:len(l.inner)-1]
		if err := last.unlock(ctx); err != nil {
			return err
		}
		if l.left != nil {
			l.left()
		}
	}
	return nil
}

// sessionConfig is the configuration of a base session.
type sessionConfig struct {
	servers  Servers
	scenario Scenario
	network  *network
	observe  func(lock.Event)
}

// open returns the base session of a network.
func open(o sessionConfig) (session, error) {
	switch {
	case o.scenario.Lock.Kind == Exec:
		return openExec(o)
	case !o.scenario.Lock.Kind.Sound():
		return openClassic(o)
	case o.scenario.Lock.Kind == Redlock:
		return openQuorum(o)
	}
	rdb, err := over(o.network, o.servers.Redis)
	if err != nil {
		return nil, err
	}
	client, err := lock.New(rdb, lock.Config{Observe: o.observe})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	s := ofClient(client, o.scenario, rdb.Close)
	if o.scenario.Lock.Kind == Nested {
		s = nestedSession{s, o.scenario.Apart}
	}
	return s, nil
}

// nestedSession is a session that locks each key on its own, in the order of the keys, and keeps it while it
// waits for the next one.
type nestedSession struct {
	session
	apart time.Duration
}

func (n nestedSession) as(id clientIdentity) session { return nestedSession{n.session.as(id), n.apart} }

func (n nestedSession) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	outer, err := n.session.lock(ctx, keys[:1], shared)
	if err != nil || len(keys) == 1 {
		return outer, err
	}
	pause(ctx, n.apart)
	inner, err := n.lock(ctx, keys[1:], shared)
	if err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
		defer cancel()
		return nil, errors.Join(err, outer.unlock(bounded))
	}
	both := *outer
	both.unlock = func(ctx context.Context) error { return errors.Join(inner.unlock(ctx), outer.unlock(ctx)) }
	both.kept = func() bool { return inner.kept() && outer.kept() }
	return &both, nil
}

// options returns the options for package lock.
func (l Lock) options() lock.Options {
	o := lock.Options{
		TTL:   l.TTL,
		Fence: l.Fence,
		Wait:  lock.Wait{Poll: l.Wait.Poll, Jitter: l.Wait.Jitter, MaxTries: l.Wait.Tries},
		Renew: lock.Renew{Off: l.Renew.Off, Every: l.Renew.every(l.TTL), Max: l.Renew.Max},
	}
	if l.Renew.Off {
		o.Renew = lock.Renew{Off: true}
	}
	return o
}

// soundSession is a session of a [lock.Client] or of a [lock.Quorum].
type soundSession struct {
	locker     func(keys []string, shared bool) (lock.Locker, error)
	identify   func(owner string) session
	end        func() error // of the client
	closeConns func() error // does nothing if they are shared
}

func keepConns() error { return nil }

func ofClient(c *lock.Client, s Scenario, closeConns func() error) session {
	return soundSession{
		func(keys []string, shared bool) (lock.Locker, error) { return locker(c, s, keys, shared) },
		func(owner string) session { return ofClient(c.As(owner), s, keepConns) }, c.Close, closeConns,
	}
}

func ofQuorum(q *lock.Quorum, s Scenario, closeConns func() error) session {
	return soundSession{
		func(keys []string, _ bool) (lock.Locker, error) { return q.Redlock(keys[0], s.Lock.options()) },
		func(owner string) session { return ofQuorum(q.As(owner), s, keepConns) }, q.Close, closeConns,
	}
}

func (s soundSession) as(id clientIdentity) session { return s.identify(id.owner) }

func (s soundSession) close() error { return errors.Join(s.end(), s.closeConns()) }

func (s soundSession) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	l, err := s.locker(keys, shared)
	if err != nil {
		return nil, err
	}
	return enter(ctx, l)
}

// enter waits for a lock of package lock.
func enter(ctx context.Context, l lock.Locker) (*lease, error) {
	held, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	fence, _ := held.Fence()
	return &lease{
		lives: held, token: held.Token(), fence: fence, unlock: held.Unlock, extend: held.Extend, kept: held.Valid, latest: held.Deadline,
		again: func(ctx context.Context) (*lease, error) { return enter(ctx, l) },
	}, nil
}

// locker returns the lock of a client.
func locker(c *lock.Client, s Scenario, keys []string, shared bool) (lock.Locker, error) {
	o, key := s.Lock.options(), keys[0]
	switch s.Lock.Kind {
	case Semaphore:
		return c.Semaphore(key, s.Lock.Permits, o)
	case All:
		return c.All(keys, o)
	case Reentrant:
		return c.Reentrant(key, o)
	case Fair, Nested: // the queue names the clients
		return c.Fair(key, o)
	case RW:
		reader, writer, err := c.RW(key, o)
		if shared {
			return reader, err
		}
		return writer, err
	}
	return c.Mutex(key, o)
}

// openNodes returns clients of the nodes of a quorum, and a function that closes them.
func openNodes(o sessionConfig) (nodes []*redis.Client, closeConns func() error, err error) {
	for i, n := range o.servers.all(Redlock) {
		theirs, ok := n.(*redis.Client)
		if !ok {
			return nil, nil, fmt.Errorf("a quorum needs independent servers, not a %T", n)
		}
		nodes = append(nodes, overNode(o.network, theirs, i+1))
	}
	return nodes, func() error {
		var errs []error
		for _, n := range nodes {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}, nil
}

func openQuorum(o sessionConfig) (session, error) {
	nodes, closeConns, err := openNodes(o)
	if err != nil {
		return nil, err
	}
	q, err := lock.NewQuorum(nodes, lock.QuorumConfig{Config: lock.Config{Observe: o.observe}})
	if err != nil {
		return nil, errors.Join(err, closeConns())
	}
	return ofQuorum(q, o.scenario, closeConns), nil
}

// clientIdentity identifies a client to its locks. The historic forms also use its
// clock, and call between before a command after which the client may be affected by a
// fault.
type clientIdentity struct {
	owner   string
	excused func(since time.Time) bool // a fault may explain that the client has been silent since
	ahead   func() time.Duration       // how far the clock is ahead of true time
	between func(ctx context.Context, next string) error
}

// clockAhead returns how far the clock of the client is ahead.
func (id clientIdentity) clockAhead() time.Duration {
	if id.ahead == nil {
		return 0
	}
	return id.ahead()
}

// flawedSession is a session of a form of package classic. These forms do not wait, so
// the session polls.
type flawedSession struct {
	nodes      []classic.Client // one, unless the form has a quorum
	form       classic.Form
	scenario   Scenario
	id         clientIdentity
	closeConns func() error // does nothing if they are shared
}

func openClassic(o sessionConfig) (session, error) {
	o.network.pool = 1 // clients that share the connection take turns
	h := flawedSession{form: formOf(o.scenario.Lock.Kind), scenario: o.scenario}
	if h.form.NewQuorum != nil {
		o.network.impatient = true // the form waits for a node as long as its context permits
		nodes, closeConns, err := openNodes(o)
		for _, n := range nodes {
			h.nodes = append(h.nodes, n)
		}
		h.closeConns = closeConns
		return h, err
	}
	rdb, err := over(o.network, o.servers.Redis)
	if err != nil {
		return nil, err
	}
	h.nodes, h.closeConns = []classic.Client{rdb}, rdb.Close
	return h, nil
}

func (h flawedSession) as(id clientIdentity) session {
	h.id, h.closeConns = id, keepConns
	return h
}

// close does not release held leases: the historic forms have no such function.
func (h flawedSession) close() error { return h.closeConns() }

func (h flawedSession) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	ahead, resumed := h.id.clockAhead(), new(atomic.Int64)
	view := h.view(keys[0], shared, ahead, resumed)
	hold, err := h.wait(ctx, view)
	if err != nil {
		return nil, err
	}
	return flawedLease(ctx, view, hold, ahead, resumed), nil
}

// flawedLease returns the lease of one entry of a historic form.
func flawedLease(ctx context.Context, view classic.Lock, hold classic.Hold, ahead time.Duration, resumed *atomic.Int64) *lease {
	t := trueTime{hold, ahead, context.WithoutCancel(ctx)}
	return &lease{
		lives: t, kept: t.Valid, latest: t.Deadline,
		decided: func() time.Time { return time.Unix(0, resumed.Load()) },
		again: func(ctx context.Context) (*lease, error) {
			inner, err := view.TryLock(ctx)
			if err != nil {
				return nil, err
			}
			return flawedLease(ctx, view, inner, ahead, resumed), nil
		},
		unlock: func(ctx context.Context) error {
			err := hold.Unlock(ctx)
			if errors.Is(err, classic.ErrLost) {
				err = fmt.Errorf("%w: %w", lock.ErrLost, err)
			}
			return err
		},
	}
}

// trueTime is a hold of a historic form by the true time. The form does not notify its holder at
// the end.
type trueTime struct {
	classic.Hold
	ahead time.Duration // how far the holder's clock is ahead
	ctx   context.Context
}

func (t trueTime) Context() context.Context { return t.ctx }
func (t trueTime) Deadline() time.Time      { return t.Hold.Deadline().Add(-t.ahead) }
func (t trueTime) Valid() bool              { return time.Now().Before(t.Deadline()) }

// view returns the lock for one acquire. Its hooks note in resumed, in Unix nanoseconds, when the
// newest call of between has ended.
func (h flawedSession) view(key string, shared bool, ahead time.Duration, resumed *atomic.Int64) classic.Lock {
	o := classic.Options{TTL: h.scenario.Lock.TTL, Permits: h.scenario.Lock.Permits}
	if !h.scenario.Lock.Renew.Off {
		o.Renewals = cmp.Or(h.scenario.Lock.Renew.Max, 4) // the number of the article
	}
	o.Hooks.Now = func() time.Time { return time.Now().Add(ahead) }
	if h.id.between != nil {
		o.Hooks.Between = func(ctx context.Context, next classic.Step) error {
			err := h.id.between(ctx, string(next))
			resumed.Store(time.Now().UnixNano())
			return err
		}
	}
	switch {
	case shared && h.form.NewReader != nil:
		return h.form.NewReader(h.nodes[0], key, o)
	case h.form.NewQuorum != nil:
		return h.form.NewQuorum(h.nodes, key, o)
	}
	return h.form.New(h.nodes[0], key, o)
}

// wait polls until the lock is free.
func (h flawedSession) wait(ctx context.Context, view classic.Lock) (classic.Hold, error) {
	w := h.scenario.Lock.Wait
	for try := 1; ; try++ {
		hold, err := view.TryLock(ctx)
		if !errors.Is(err, classic.ErrHeld) {
			return hold, err
		}
		if try == w.Tries {
			return nil, fmt.Errorf("%w: asked %d times", lock.ErrHeld, try)
		}
		apart := w.Poll + time.Duration((2*rand.Float64()-1)*w.Jitter*float64(w.Poll))
		pause(ctx, apart)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}
