package loadgen

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// session is one party to the locks: nobody else unlocks what it locked. It is
// an interface because not every lock that a fleet can fight over is one of
// package lock: the historic forms hand out leases of their own, and the oracle
// is tried on forms that are broken.
type session interface {
	// as returns another identity over the same connections.
	as(clientIdentity) session
	// lock waits until the key is held, or ctx ends; shared is to read only.
	lock(ctx context.Context, key string, shared bool) (lease, error)
	// close releases what is still held. That of the first identity also ends
	// what all those made from it share.
	close() error
}

// lease is what a simulated client needs of a [lock.Lease].
type lease interface {
	validity
	// Context ends with the lease; for locks that do not tell their holder, never.
	Context() context.Context
	Token() string
	Fence() int64
	// Unlock returns lock.ErrLost if it finds that the lease was over already.
	Unlock(context.Context) error
}

// sessionConfig is what an identity is made of.
type sessionConfig struct {
	servers  Servers
	scenario Scenario
	wire     *network
	observe  func(lock.Event)
}

// open returns the first identity over a wire.
func open(o sessionConfig) (session, error) {
	switch {
	case !o.scenario.Lock.Kind.Sound():
		return openClassic(o)
	case o.scenario.Lock.Kind == Redlock:
		return openQuorum(o)
	}
	rdb, err := o.wire.over(o.servers.Redis)
	if err != nil {
		return nil, err
	}
	client, err := lock.New(rdb, lock.Config{Observe: o.observe})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return clientSession{client, o.scenario, rdb.Close}, nil
}

// lockOptions are those of package lock.
func (s Scenario) lockOptions() lock.Options {
	l := s.Lock
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

// clientSession is an identity that locks with the kinds of a [lock.Client].
type clientSession struct {
	client   *lock.Client
	scenario Scenario
	hangUp   func() error // nil: somebody else does
}

func (s clientSession) as(who clientIdentity) session {
	return clientSession{s.client.As(who.owner), s.scenario, nil}
}

func (s clientSession) close() error {
	err := s.client.Close()
	if s.hangUp != nil {
		err = errors.Join(err, s.hangUp())
	}
	return err
}

func (s clientSession) lock(ctx context.Context, key string, shared bool) (lease, error) {
	return lockDepth(ctx, s.locker(key, shared), s.scenario.Depth)
}

func (s clientSession) locker(key string, shared bool) lock.Locker {
	o := s.scenario.lockOptions()
	switch s.scenario.Lock.Kind {
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

// quorumSession is an identity that locks with [lock.Redlock].
type quorumSession struct {
	quorum   *lock.Quorum
	scenario Scenario
	hangUp   func() error
}

func openQuorum(o sessionConfig) (session, error) {
	theirs, err := o.servers.quorum()
	if err != nil {
		return nil, err
	}
	nodes := make([]*redis.Client, len(theirs))
	for i, n := range theirs {
		nodes[i] = o.wire.overNode(n, i+1)
	}
	hangUp := func() error {
		var errs []error
		for _, n := range nodes {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}
	q, err := lock.NewQuorum(nodes, lock.QuorumConfig{Config: lock.Config{Observe: o.observe}})
	if err != nil {
		return nil, errors.Join(err, hangUp())
	}
	return quorumSession{q, o.scenario, hangUp}, nil
}

func (q quorumSession) as(who clientIdentity) session {
	return quorumSession{q.quorum.As(who.owner), q.scenario, nil}
}

func (q quorumSession) close() error {
	err := q.quorum.Close()
	if q.hangUp != nil {
		err = errors.Join(err, q.hangUp())
	}
	return err
}

func (q quorumSession) lock(ctx context.Context, key string, _ bool) (lease, error) {
	return lockDepth(ctx, q.quorum.Redlock(key, q.scenario.lockOptions()), 1)
}

// lockDepth locks as often as depth says, all or nothing.
func lockDepth(ctx context.Context, l lock.Locker, depth int) (lease, error) {
	outer, err := l.Lock(ctx)
	if err != nil {
		return nil, err // not a nil *lock.Lease in an interface that is not nil
	}
	if depth == 1 {
		return outer, nil
	}
	n := &reentrantLease{Lease: outer}
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

// reentrantLease is a lock that was entered more than once by its owner.
type reentrantLease struct {
	*lock.Lease // the first
	inner       []*lock.Lease
}

// unwind leaves as often as was entered, but for once, for no longer than the lease
// lasts, and reports whether the lock was still held.
func (n *reentrantLease) unwind() bool {
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

// Unlock leaves as often as was entered.
func (n *reentrantLease) Unlock(ctx context.Context) error {
	if err := n.leaveInner(ctx); err != nil {
		return errors.Join(err, n.Lease.Unlock(ctx))
	}
	return n.Lease.Unlock(ctx)
}
