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
	rdb, err := o.network.over(o.servers.Redis)
	if err != nil {
		return nil, err
	}
	client, err := lock.New(rdb, lock.Config{Observe: o.observe})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return clientSession{client, o.scenario, rdb.Close}, nil
}

// options returns the options for package lock.
func (l Lock) options() lock.Options {
	o := lock.Options{
		TTL:   l.TTL,
		Fence: l.Fence,
		Wait:  lock.Wait{Poll: l.Wait.Poll, Jitter: l.Wait.Jitter, MaxTries: l.Wait.Tries},
		Renew: lock.Renew{Off: l.Renew.Off, Every: l.Renew.Every, Max: l.Renew.Max},
	}
	if l.Renew.Off {
		o.Renew = lock.Renew{Off: true}
	}
	return o
}

// clientSession is a session of a [lock.Client].
type clientSession struct {
	client     *lock.Client
	scenario   Scenario
	closeConns func() error // nil: shared connections
}

func (s clientSession) as(id clientIdentity) session {
	return clientSession{s.client.As(id.owner), s.scenario, nil}
}

func (s clientSession) close() error {
	err := s.client.Close()
	if s.closeConns != nil {
		err = errors.Join(err, s.closeConns())
	}
	return err
}

func (s clientSession) lock(ctx context.Context, keys []string, shared bool) (lease, error) {
	return lockDepth(ctx, s.locker(keys, shared), s.scenario.Lock.TTL, s.scenario.Lock.Kind.reentrant(), s.scenario.Depth)
}

func (s clientSession) locker(keys []string, shared bool) lock.Locker {
	o, key := s.scenario.Lock.options(), keys[0]
	switch s.scenario.Lock.Kind {
	case Semaphore:
		return s.client.Semaphore(key, s.scenario.Lock.Permits, o)
	case All:
		return s.client.All(keys, o)
	case Reentrant:
		return s.client.Reentrant(key, o)
	case Fair:
		return s.client.Fair(key, o)
	case RW:
		rw := s.client.RW(key, o)
		if shared {
			return rw.Reader()
		}
		return rw.Writer()
	}
	return s.client.Mutex(key, o)
}

// quorumSession is a session of a [lock.Quorum].
type quorumSession struct {
	quorum     *lock.Quorum
	scenario   Scenario
	closeConns func() error
}

// openNodes returns clients of the nodes of a quorum, and a function that closes them.
func (o sessionConfig) openNodes() (nodes []*redis.Client, closeConns func() error, err error) {
	theirs, err := o.servers.quorum()
	if err != nil {
		return nil, nil, err
	}
	for i, n := range theirs {
		nodes = append(nodes, o.network.overNode(n, i+1))
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
	nodes, closeConns, err := o.openNodes()
	if err != nil {
		return nil, err
	}
	q, err := lock.NewQuorum(nodes, lock.QuorumConfig{Config: lock.Config{Observe: o.observe}})
	if err != nil {
		return nil, errors.Join(err, closeConns())
	}
	return quorumSession{q, o.scenario, closeConns}, nil
}

func (q quorumSession) as(id clientIdentity) session {
	return quorumSession{q.quorum.As(id.owner), q.scenario, nil}
}

func (q quorumSession) close() error {
	err := q.quorum.Close()
	if q.closeConns != nil {
		err = errors.Join(err, q.closeConns())
	}
	return err
}

func (q quorumSession) lock(ctx context.Context, keys []string, _ bool) (lease, error) {
	return lockDepth(ctx, q.quorum.Redlock(keys[0], q.scenario.Lock.options()), 0, false, 1)
}

// lockDepth acquires l depth times, or not at all.
func lockDepth(ctx context.Context, l lock.Locker, ttl time.Duration, reentrant bool, depth int) (lease, error) {
	outer, err := l.Lock(ctx)
	if err != nil {
		return nil, err // do not return a nil *lock.Lease in a non-nil interface
	}
	if !reentrant {
		return outer, nil
	}
	n := &reentrantLease{Lease: outer, locker: l}
	if depth > 1 {
		n.began = outer.Deadline().Add(-ttl)
	}
	for range depth - 1 {
		inner, err := l.Lock(ctx)
		if err != nil {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("enter again: %w", err), n.Unlock(bounded))
		}
		n.inner = append(n.inner, inner)
	}
	return n, nil
}

// reentrantLease is a lock that its owner may have entered more than once.
type reentrantLease struct {
	*lock.Lease // the outer lease
	locker      lock.Locker
	inner       []*lock.Lease
	began       time.Time // of the lease of the first entry, if there are several
}

// first returns when the lease of the first of several entries began, zero if there is only
// one.
func (n *reentrantLease) first() time.Time { return n.began }

// enterAgain returns the lease of another entry, which its caller unlocks by itself.
func (n *reentrantLease) enterAgain(ctx context.Context) (lease, error) {
	return lockDepth(ctx, n.locker, 0, true, 1)
}

// unwind leaves all inner leases and reports whether the lock was still held. It takes
// at most releaseWithin, and stops at the end of the lease.
func (n *reentrantLease) unwind() bool {
	if len(n.inner) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(n.Context(), releaseWithin)
	defer cancel()
	return n.leaveInner(ctx) == nil || n.Valid()
}

func (n *reentrantLease) leaveInner(ctx context.Context) error {
	for len(n.inner) > 0 {
		last := n.inner[len(n.inner)-1]
		n.inner = n.inner[:len(n.inner)-1]
		if err := last.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Unlock leaves all inner leases, then the outer one.
func (n *reentrantLease) Unlock(ctx context.Context) error {
	if err := n.leaveInner(ctx); err != nil {
		return errors.Join(err, n.Lease.Unlock(ctx))
	}
	return n.Lease.Unlock(ctx)
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
	nodes      []redis.UniversalClient // one, unless the form has a quorum
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
		nodes, closeConns, err := o.openNodes()
		for _, n := range nodes {
			h.nodes = append(h.nodes, n)
		}
		h.closeConns = closeConns
		return h, err
	}
	rdb, err := o.network.over(o.servers.Redis)
	if err != nil {
		return nil, err
	}
	h.nodes, h.closeConns = []redis.UniversalClient{rdb}, rdb.Close
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
	hold, err := h.wait(ctx, g.view)
	if err != nil {
		return nil, err
	}
	g.holds = append(g.holds, hold)
	if h.scenario.Depth > 1 {
		g.began = g.Deadline().Add(-h.scenario.Lock.TTL)
	}
	for range h.scenario.Depth - 1 {
		inner, err := g.view.TryLock(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("enter again: %w", err), g.Unlock(ctx))
		}
		g.holds = append(g.holds, inner)
	}
	return g, nil
}

// view returns the lock for one acquire.
func (h flawedSession) view(key string, shared bool, g *flawedLease) classic.Lock {
	o := classic.Options{TTL: h.scenario.Lock.TTL, Renewals: h.renewals(), Permits: h.scenario.Lock.Permits}
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

func (h flawedSession) renewals() int {
	if h.scenario.Lock.Renew.Off {
		return -1
	}
	return h.scenario.Lock.Renew.Max
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
	view    classic.Lock
	holds   []classic.Hold // one per entry
	ahead   time.Duration  // how far the holder's clock is ahead
	resumed atomic.Int64   // end of the newest call of between, in Unix nanoseconds
	began   time.Time      // of the lease of the first entry, if there are several
	ctx     context.Context
}

func (g *flawedLease) first() time.Time { return g.began }

func (g *flawedLease) Context() context.Context { return g.ctx }
func (g *flawedLease) Token() string            { return "" }
func (g *flawedLease) Fence() int64             { return 0 }

// enterAgain returns the lease of another entry, which its caller unlocks by itself.
func (g *flawedLease) enterAgain(ctx context.Context) (lease, error) {
	inner, err := g.view.TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return &flawedLease{view: g.view, holds: []classic.Hold{inner}, ahead: g.ahead, ctx: g.ctx}, nil
}

// Deadline returns the deadline in true time.
func (g *flawedLease) Deadline() time.Time { return g.holds[0].Deadline().Add(-g.ahead) }

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
	for _, hold := range g.holds {
		err := hold.Unlock(ctx)
		if errors.Is(err, classic.ErrLost) {
			err = fmt.Errorf("%w: %w", lock.ErrLost, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
