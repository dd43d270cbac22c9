package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen/oracle"
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
	lock(ctx context.Context, keys []string, shared bool) (lease, error)
	// close releases the held leases. On the base session, it also closes the shared
	// connections.
	close() error
}

// lease is the part of a [lock.Lease] that a client uses.
type lease interface {
	oracle.Lease
	// Context ends with the lease. If the lock does not notify its holder, it never
	// ends.
	Context() context.Context
	Token() string
	Fence() int64
	// Unlock returns lock.ErrLost if the lease was over.
	Unlock(context.Context) error
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
	return ofClient(client, o.scenario, rdb.Close), nil
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
	scenario   Scenario
	locker     func(keys []string, shared bool) lock.Locker
	identify   func(owner string) session
	end        func() error // of the client
	closeConns func() error // does nothing if they are shared
}

func keepConns() error { return nil }

func ofClient(c *lock.Client, s Scenario, closeConns func() error) session {
	return soundSession{
		s, func(keys []string, shared bool) lock.Locker { return locker(c, s, keys, shared) },
		func(owner string) session { return ofClient(c.As(owner), s, keepConns) }, c.Close, closeConns,
	}
}

func ofQuorum(q *lock.Quorum, s Scenario, closeConns func() error) session {
	return soundSession{
		s, func(keys []string, _ bool) lock.Locker { return q.Redlock(keys[0], s.Lock.options()) },
		func(owner string) session { return ofQuorum(q.As(owner), s, keepConns) }, q.Close, closeConns,
	}
}

func (s soundSession) as(id clientIdentity) session { return s.identify(id.owner) }

func (s soundSession) close() error { return errors.Join(s.end(), s.closeConns()) }

func (s soundSession) lock(ctx context.Context, keys []string, shared bool) (lease, error) {
	l := s.locker(keys, shared)
	outer, err := l.Lock(ctx)
	if err != nil {
		return nil, err // do not return a nil *lock.Lease in a non-nil interface
	}
	if !s.scenario.Lock.Kind.reentrant() {
		return outer, nil
	}
	n := &reentrantLease{Lease: outer, locker: l}
	if err := n.enter(ctx, &s.scenario, n, func() (unlocker, error) { return l.Lock(ctx) }); err != nil {
		return nil, err
	}
	return n, nil
}

// locker returns the lock of a client.
func locker(c *lock.Client, s Scenario, keys []string, shared bool) lock.Locker {
	o, key := s.Lock.options(), keys[0]
	switch s.Lock.Kind {
	case Semaphore:
		return c.Semaphore(key, s.Lock.Permits, o)
	case All:
		return c.All(keys, o)
	case Reentrant:
		return c.Reentrant(key, o)
	case Fair:
		return c.Fair(key, o)
	case RW:
		rw := c.RW(key, o)
		if shared {
			return rw.Reader()
		}
		return rw.Writer()
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

// unlocker is what a client does with the lease of a further entry.
type unlocker interface{ Unlock(context.Context) error }

// entries are the further entries of a lock that its owner has entered more than once.
type entries struct {
	began time.Time // of the lease of the first entry, if there are several
	inner []unlocker
}

// first returns when the lease of the first of several entries began, zero if there is only
// one.
func (n *entries) first() time.Time { return n.began }

// enter enters a lock as often as s says. If an entry fails, it unlocks all, the lease of which
// these are the entries.
func (n *entries) enter(ctx context.Context, s *Scenario, all lease, again func() (unlocker, error)) error {
	if s.Depth > 1 {
		n.began = all.Deadline().Add(-s.Lock.TTL)
	}
	for range s.Depth - 1 {
		inner, err := again()
		if err != nil {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
			defer cancel()
			return errors.Join(fmt.Errorf("enter again: %w", err), all.Unlock(bounded))
		}
		n.inner = append(n.inner, inner)
	}
	return nil
}

// unwindUntil leaves the further entries and reports whether the lock was still held. It
// takes at most releaseWithin, and stops at the end of the lease.
func (n *entries) unwindUntil(end context.Context, kept func() bool) bool {
	if len(n.inner) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(end, releaseWithin)
	defer cancel()
	return n.leave(ctx) == nil || kept()
}

// leave leaves the further entries, the last one first, until an error.
func (n *entries) leave(ctx context.Context) error {
	for len(n.inner) > 0 {
		last := n.inner[len(n.inner)-1]
		n.inner = n.inner[:len(n.inner)-1]
		if err := last.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reentrantLease is a lock that its owner may have entered more than once.
type reentrantLease struct {
	*lock.Lease // of the first entry
	entries
	locker lock.Locker
}

// enterAgain returns the lease of another entry, which its caller unlocks by itself.
func (n *reentrantLease) enterAgain(ctx context.Context) (lease, error) {
	inner, err := n.locker.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &reentrantLease{Lease: inner, locker: n.locker}, nil
}

func (n *reentrantLease) unwind() bool { return n.unwindUntil(n.Context(), n.Valid) }

// Unlock leaves the further entries, then the first one.
func (n *reentrantLease) Unlock(ctx context.Context) error {
	return errors.Join(n.leave(ctx), n.Lease.Unlock(ctx))
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
	closeConns func() error // nil: shared connections
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
	h.id, h.closeConns = id, nil
	return h
}

// close does not release held leases: the historic forms have no such function.
func (h flawedSession) close() error {
	if h.closeConns != nil {
		return h.closeConns()
	}
	return nil
}

func (h flawedSession) lock(ctx context.Context, keys []string, shared bool) (lease, error) {
	g := &flawedLease{ahead: h.id.clockAhead(), ctx: context.WithoutCancel(ctx)}
	g.view = h.view(keys[0], shared, g)
	var err error
	if g.hold, err = h.wait(ctx, g.view); err != nil {
		return nil, err
	}
	if err := g.enter(ctx, &h.scenario, g, func() (unlocker, error) { return g.view.TryLock(ctx) }); err != nil {
		return nil, err
	}
	return g, nil
}

// view returns the lock for one acquire.
func (h flawedSession) view(key string, shared bool, g *flawedLease) classic.Lock {
	o := classic.Options{TTL: h.scenario.Lock.TTL, Renewals: h.scenario.Lock.Renew.Max, Permits: h.scenario.Lock.Permits}
	if h.scenario.Lock.Renew.Off {
		o.Renewals = -1
	}
	o.Hooks.Now = func() time.Time { return time.Now().Add(g.ahead) }
	if h.id.between != nil {
		o.Hooks.Between = func(ctx context.Context, next classic.Step) error {
			err := h.id.between(ctx, string(next))
			g.resumed.Store(time.Now().UnixNano())
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

// flawedLease is a lease of a historic form, which does not notify its holder at the
// end.
type flawedLease struct {
	view classic.Lock
	hold classic.Hold // of the first entry
	entries
	ahead   time.Duration // how far the holder's clock is ahead
	resumed atomic.Int64  // end of the newest call of between, in Unix nanoseconds
	ctx     context.Context
}

func (g *flawedLease) Context() context.Context { return g.ctx }
func (g *flawedLease) Token() string            { return "" }
func (g *flawedLease) Fence() int64             { return 0 }

// enterAgain returns the lease of another entry, which its caller unlocks by itself.
func (g *flawedLease) enterAgain(ctx context.Context) (lease, error) {
	inner, err := g.view.TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return &flawedLease{view: g.view, hold: inner, ahead: g.ahead, ctx: g.ctx}, nil
}

// Deadline returns the deadline in true time.
func (g *flawedLease) Deadline() time.Time { return g.hold.Deadline().Add(-g.ahead) }

func (g *flawedLease) Valid() bool { return time.Now().Before(g.Deadline()) }

// decided returns when the holder last read the lock before it deleted it.
func (g *flawedLease) decided() time.Time {
	if at := g.resumed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func (g *flawedLease) Unlock(ctx context.Context) error {
	var errs []error
	for _, entry := range append([]unlocker{g.hold}, g.inner...) {
		err := entry.Unlock(ctx)
		if errors.Is(err, classic.ErrLost) {
			err = fmt.Errorf("%w: %w", lock.ErrLost, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
