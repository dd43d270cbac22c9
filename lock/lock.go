// Package lock is a set of distributed locks on Redis.
//
// A [Client] is an identity and the connections it locks over. It hands out
// locks by name; acquiring one gives a [Lease], which ends when it is unlocked,
// when it is lost, or when its time runs out:
//
//	client, err := lock.New(rdb, lock.Config{Owner: "billing-7"})
//	...
//	defer client.Close()
//
//	lease, err := client.Mutex("orders:4711", lock.Options{}).Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(context.WithoutCancel(ctx))
//	return settle(lease.Context(), order) // stops when the lease is lost
//
// # Kinds
//
//   - [Client.Mutex]: one holder. The form that most libraries agree on.
//   - [Client.Reentrant]: one holder, which may enter again.
//   - [Client.Fair]: one holder, the others in a queue, served in order of
//     arrival over all processes.
//   - [Client.RW]: many readers together, or one writer.
//   - [Quorum.Redlock]: one holder, over several independent servers of which
//     fewer than half may be down.
//
// All are [Locker] values and give the same kind of lease.
//
// # What a lease is worth
//
// Redis cannot stop a holder whose time is up: the lease tells the holder
// instead. [Lease.Valid] looks at the clock alone and is exact; the context of
// [Lease.Context] ends by a local timer, without asking the network. Both judge
// by a deadline that counts from the moment before the request was sent, less
// an allowance for clock drift, so it lies before the moment at which anybody
// else can get the lock. Of the monotonic and the wall clock the one that has
// advanced further decides: a machine that was suspended wakes up to a lost
// lease.
//
// While it is held, a lease is renewed in the background, unless [Renew.Off].
// Work that outlives its lease in spite of everything (a process stopped
// between looking at the clock and writing) is beyond any lock with a lease; it
// takes a resource that checks the numbers of [Lease.Fence].
//
// A key that vanishes with the memory of its server (a restart without
// persistence, a failover before replication, eviction) is free for the next
// one at once. The holder learns of it at its next renewal. A [Redlock] bears the
// loss of fewer than half of its servers, not of more.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Config says who locks. The zero value works.
type Config struct {
	// Owner is the label others see as the holder, of at most 100 bytes.
	// Default: host:pid.
	Owner string
	// Observe is told of everything that happens, on the goroutine where it
	// happens: it must be quick and may be called concurrently.
	Observe func(Event)
}

// Options say how one lock is held. The zero value works.
type Options struct {
	// TTL is the time to live of a lease that is not renewed: after a crash the
	// lock is free at most this long after. Whole milliseconds, at least 10 ms.
	// Default: 10 s.
	TTL time.Duration
	// Renew says how the lease is kept alive. The zero value renews for ever.
	Renew Renew
	// Wait says how Lock waits. The zero value listens for the release.
	Wait Wait
	// Fence numbers the holders: see [Lease.Fence]. The counter is a key of its
	// own beside the lock, without expiry.
	Fence bool
	// Replicas is how many replicas must have the lock before it counts as
	// acquired. With too few within ReplicaTimeout it is given back, and the error
	// is [ErrNotReplicated]. It takes a second round trip, and the lock then
	// survives a failover to any replica that confirmed it; without, one that
	// comes right after the acquire may lose the lock, and somebody else may get
	// it while the lease is still valid. Renewals are not waited for.
	Replicas int
	// ReplicaTimeout goes with Replicas: whole milliseconds, shorter than the TTL.
	// Default: 1 s, or half the TTL if that is shorter.
	ReplicaTimeout time.Duration
}

// Renew bounds the renewal of a lease.
type Renew struct {
	Every   time.Duration // default TTL/3; at least 1 ms, and less than the TTL
	Max     int           // renewals before the lease is left to run out; 0 = no bound
	MaxHold time.Duration // the lease ends this long after it began, renewed or not, and the lock is free then; 0 = no bound
	Off     bool          // no renewal: the lease ends TTL after it began, unless extended by hand
}

// Wait says how Lock waits for a lock that is held.
type Wait struct {
	// Poll asks again and again, this long after each refusal, instead of
	// listening for the release. Every waiting goroutine asks for itself.
	Poll time.Duration
	// Jitter spreads each pause evenly over Poll ± Poll×Jitter, so that clients
	// which were refused together do not come back together. 0 to 1.
	Jitter float64
	// MaxTries is how often to ask before Lock gives up with [ErrHeld]; 0 = until
	// its context ends. It goes with Poll.
	MaxTries int
}

// pause returns the time until the next try.
func (w Wait) pause() time.Duration {
	return w.Poll + time.Duration((2*rand.Float64()-1)*w.Jitter*float64(w.Poll))
}

// check refuses what cannot work.
func (w Wait) check() error {
	switch {
	case w.Poll < 0 || w.MaxTries < 0:
		return fmt.Errorf("%w: negative wait", ErrArgument)
	case w.Jitter < 0 || w.Jitter > 1:
		return fmt.Errorf("%w: jitter %v; it must be between 0 and 1", ErrArgument, w.Jitter)
	case w.Poll == 0 && (w.MaxTries > 0 || w.Jitter > 0):
		return fmt.Errorf("%w: MaxTries and Jitter go with Poll", ErrArgument)
	}
	return nil
}

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour
	minEvery   = time.Millisecond
)

// Validate returns an error that matches [ErrArgument] if no lock can have these
// options. Locks that have them all the same say so when they are used.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults fills in what is missing and refuses what cannot work.
func (o Options) withDefaults() (Options, error) {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if err := checkTTL(o.TTL); err != nil {
		return o, err
	}
	if o.Renew.Every == 0 {
		o.Renew.Every = o.TTL / 3
	}
	if o.Renew.Every < minEvery || o.Renew.Every >= o.TTL {
		return o, fmt.Errorf("%w: renewal every %v; it must be at least %v and shorter than the TTL of %v", ErrArgument, o.Renew.Every, minEvery, o.TTL)
	}
	if o.Renew.Max < 0 || o.Renew.MaxHold < 0 {
		return o, fmt.Errorf("%w: negative bound on renewal", ErrArgument)
	}
	if o.Replicas > 0 && o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = min(time.Second, (o.TTL / 2).Truncate(time.Millisecond))
	}
	return o, errors.Join(o.Wait.check(), o.checkReplicas())
}

// checkReplicas refuses what cannot work.
func (o Options) checkReplicas() error {
	switch {
	case o.Replicas < 0:
		return fmt.Errorf("%w: %d replicas", ErrArgument, o.Replicas)
	case o.Replicas == 0 && o.ReplicaTimeout != 0:
		return fmt.Errorf("%w: ReplicaTimeout goes with Replicas", ErrArgument)
	case o.Replicas == 0:
		return nil
	case o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout >= o.TTL || o.ReplicaTimeout%time.Millisecond != 0:
		return fmt.Errorf("%w: wait %v for replicas; it must be whole milliseconds and shorter than the TTL of %v", ErrArgument, o.ReplicaTimeout, o.TTL)
	}
	return nil
}

// checkTTL refuses what Redis would round or misread.
func checkTTL(ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL || ttl%time.Millisecond != 0 {
		return fmt.Errorf("%w: TTL %v; it must be whole milliseconds between %v and %v", ErrArgument, ttl, minTTL, maxTTL)
	}
	return nil
}

// Client is an identity that locks. It is safe for concurrent use.
type Client struct {
	*core
	owner       string
	parent      *Client // As was called of it; nil = New made this one
	localQueues localQueues

	closed atomic.Bool // Close was called

	mu           sync.Mutex
	waiters      int             // callers of closing; what follows is theirs
	ended        context.Context // ends with Close
	end          context.CancelFunc
	stopWatching func() // no more waits for the end of parent
}

// core is what identities share: the connections, the clock work of all
// leases, and the waiters' ears.
type core struct {
	id        string // a UUID of its own
	transport transport
	renewer   renewer
	notifier  notifier
	observe   func(Event)
	counts    [eventKinds]atomic.Int64
	waits     atomic.Int64   // calls of Lock
	scripted  atomic.Bool    // the server has run a script of ours
	writers   waitingWriters // that wait for a read/write lock
	tasks     taskGroup      // undos and renewals: they come and go
	workers   sync.WaitGroup // run until alive ends

	alive context.Context // ends when everything must be over
	stop  context.CancelFunc
}

// New returns a client that locks where rdb points: a [redis.Client], single or
// behind Sentinel, or a [redis.ClusterClient]. It takes address, credentials
// and dialer from rdb's options but opens connections of its own, because a
// lock's commands must not be sent twice behind its back; rdb stays the
// caller's. Hooks of rdb are not called. Nothing is dialed before it is needed.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	t, err := newTransport(rdb)
	if err != nil {
		return nil, err
	}
	return newClient(t, cfg)
}

// newClient returns a client that locks over a wire, which becomes its own.
func newClient(t transport, cfg Config) (*Client, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: make an id: %w", err), t.close())
	}
	if cfg.Owner == "" {
		cfg.Owner = defaultOwner()
	}
	if err := checkOwner(cfg.Owner); err != nil {
		return nil, errors.Join(fmt.Errorf("lock: new client: %w", err), t.close())
	}
	c := &core{id: id.String(), transport: t, observe: cfg.Observe}
	c.alive, c.stop = context.WithCancel(context.Background())
	c.renewer.init()
	c.notifier.init(c)
	c.workers.Go(c.runRenewer)
	return &Client{core: c, owner: cfg.Owner}, nil
}

// As returns another identity over the same connections: what it holds is held
// against c as against a stranger. It ends with c, and need not be closed before: an
// identity that is dropped costs nothing.
func (c *Client) As(owner string) *Client {
	return &Client{core: c.core, owner: owner, parent: c}
}

// isClosed reports whether the identity has ended, with Close of its own or of one
// that it comes from.
func (c *Client) isClosed() bool {
	for ; c != nil; c = c.parent {
		if c.closed.Load() {
			return true
		}
	}
	return false
}

// isOf reports whether the identity is the other one or comes from it.
func (c *Client) isOf(other *Client) bool {
	for ; c != nil; c = c.parent {
		if c == other {
			return true
		}
	}
	return false
}

// closing returns a context that ends with the identity, for a caller that waits for
// that and calls through afterwards. An identity for which nobody waits is not known
// to the one that it comes from, and may be dropped.
func (c *Client) closing() (ended context.Context, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters == 0 {
		from, done := c.alive, func() {}
		if c.parent != nil {
			from, done = c.parent.closing()
		}
		c.ended, c.end = context.WithCancel(from)
		c.stopWatching = done
		if c.closed.Load() {
			c.end()
		}
	}
	c.waiters++
	return c.ended, c.doneClosing
}

// doneClosing counts out a caller of closing.
func (c *Client) doneClosing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiters--
	if c.waiters == 0 {
		c.end()
		c.stopWatching()
	}
}

// markClosed lets nothing begin any more. It returns false if it was called before.
func (c *Client) markClosed() bool {
	if c.closed.Swap(true) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters > 0 {
		c.end()
	}
	return true
}

// closeTimeout bounds how long Close waits for a server that does not answer,
// once for releases and once for undos.
const closeTimeout = time.Second

// Close ends what the client and its identities do: those who wait get [ErrClosed],
// what is held is released, with ErrClosed as the cause of its leases' end, and what
// is being acquired is given back. Closing the client that New returned closes its
// connections, too, and returns when nothing of it runs any more but what is inside
// [Config.Observe], from where it may be called: within a few seconds even if the
// server does not answer. Closing it again does nothing.
func (c *Client) Close() error {
	if !c.markClosed() {
		return nil
	}
	for _, a := range c.tasks.attempts(c) {
		c.undo(a.base.protocol, a.token, a.until, nil)
	}
	err := c.core.releaseAll(func(h *hold) bool { return h.base.client.isOf(c) })
	if c.parent != nil {
		return err
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-c.tasks.idle():
	case <-timer.C:
	}
	return cmp.Or(err, c.core.shutDown())
}

// releaseAll ends the holds that match and releases them in one pipeline. It
// returns one of the errors.
func (c *core) releaseAll(match func(*hold) bool) error {
	holds := c.renewer.all(match)
	if len(holds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.alive, closeTimeout)
	defer cancel()
	requests := make([]future, len(holds))
	for i, h := range holds {
		h.finish(ErrClosed)
		requests[i] = h.base.protocol.release(ctx, h.token, 0)
	}
	var failed error
	for i, h := range holds {
		if _, err := requests[i].wait(ctx); err != nil {
			failed = describe("close: release", h.base.key, err)
			continue
		}
		c.counts[Released].Add(1)
		if c.observe != nil {
			c.observe(h.event(Released))
		}
	}
	return failed
}

// shutDown ends everything and waits for it.
func (c *core) shutDown() error {
	c.stop()
	c.tasks.close()
	err := c.transport.close()
	<-c.tasks.idle()
	c.workers.Wait()
	if err != nil {
		return fmt.Errorf("lock: close: %w", err)
	}
	return nil
}

// emit reports an event; it costs nothing when nobody observes. The caller is one of
// the tasks, but not while it is outside of the package: what happens there may be
// Close, which waits for the tasks.
func (c *core) emit(e Event) {
	c.counts[e.Kind].Add(1)
	if c.observe != nil {
		c.tasks.done()
		defer c.tasks.add()
		c.observe(e)
	}
}
