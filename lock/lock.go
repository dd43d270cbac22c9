// Package lock provides distributed locks on Redis.
//
// A [Client] has an owner label and connections to Redis. Its methods return locks by name. [Do]
// runs a function under a lock:
//
//	client, err := lock.New(rdb, lock.Config{Owner: "billing-7"})
//	...
//	defer client.Close()
//
//	order, err := client.Mutex("orders:4711", lock.Options{})
//	...
//	err = lock.Do(ctx, order, func(ctx context.Context) error {
//		return charge(ctx, "4711") // ctx ends if the lock is lost
//	})
//
// [Elect] runs a function while this process leads. Locker.Lock and Locker.TryLock return a
// [Lease] instead. It ends when it is unlocked, when it is lost, or when its time to live (TTL) has
// passed.
//
// # Kinds
//
//   - [Client.Mutex]: one holder. Most libraries use the same keys and values.
//   - [Client.Reentrant]: one holder, which may acquire the lock again.
//   - [Client.Fair]: one holder. The server keeps the waiters of all processes in a
//     queue and serves them in order of arrival.
//   - [Client.RW]: many readers, or one writer.
//   - [Client.All]: one holder of several keys, all or nothing.
//   - [Client.Semaphore]: as many holders as its limit, which may change.
//   - [Quorum.Redlock]: one holder, on several independent servers. Fewer than half of
//     the servers may be down.
//
// All of them are a [Locker], and return the same type of lease. The constructors send nothing.
// They return [ErrArgument] for options that cannot work, or do not apply to the kind.
//
// # What a lease guarantees
//
// Redis cannot stop a holder whose lease has expired, so the lease informs the holder.
// [Lease.Valid] reads only the clock and is exact. The context of [Lease.Context] is
// cancelled by a local timer, without network access. Both use a deadline that is
// measured from before the request was sent, minus an allowance for clock drift. The
// deadline therefore lies before the time at which another client can acquire the
// lock. Of the monotonic clock and the wall clock, the one that has advanced further
// decides: leases that expire while the machine is suspended are lost when it resumes.
//
// A lease is renewed in the background until it ends, unless [Renew.Off] is set. No
// lease protects work that continues after its end, for example when the process is
// stopped between the check of the clock and a write. A resource that compares the
// numbers of [Lease.Fence] does.
//
// If the server loses its data (a restart without persistence, a failover before
// replication, eviction), the lock is free immediately. The holder learns this at its next
// renewal. A [Quorum.Redlock] survives the loss of fewer than half of its servers.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"locktop/lock/internal/transport"
)

// Config configures a [Client]. The zero value works.
type Config struct {
	// Owner is the label that others see as the holder, at most 100 bytes. Default:
	// host:pid.
	Owner string
	// Observe receives every event, on the goroutine that causes it. Observe must
	// return quickly and may be called concurrently.
	Observe func(Event)
}

// Options configures one lock. The zero value works.
type Options struct {
	// TTL is the time to live of the lock on the server. If the holder crashes, the
	// lock is free after at most this time and Delay. Whole milliseconds, at least
	// 10 ms. Default: 10 s.
	TTL time.Duration
	// Delay keeps other clients out for this time after a lease has ended without
	// Unlock: its holder crashed, lost contact, or reached a limit in Renew. A holder
	// that is slow to notice the end does no harm in this time. Unlock and
	// [Client.Close] free the lock immediately. On the server the key lives for TTL and
	// Delay together, by the server's clock. A key that is deleted there is free at
	// once. Whole milliseconds, at most 365 days. Default: 0.
	Delay time.Duration
	// Renew configures the renewal of the lease. The zero value renews without limit.
	Renew Renew
	// Wait configures how Lock waits. The zero value subscribes to the release. It does
	// not apply to a [Client.Fair] lock.
	Wait Wait
	// Fence enables fencing tokens: see [Lease.Fence]. The counter is a separate key
	// without expiry. It does not apply to an [Client.All] or a [Semaphore].
	Fence bool
	// Replicas is the number of replicas that must confirm the lock before it counts
	// as acquired. If fewer confirm within ReplicaTimeout, the lock is released and
	// the error is [ErrUnavailable]. The confirmation costs a second round trip. The
	// lock then survives a failover to any replica that confirmed it. Without
	// confirmation, a failover right after the acquire may lose the lock, and another
	// client may acquire it while the lease is still valid. Renewals are not
	// confirmed. It does not apply to an [Client.All] or a [Quorum.Redlock].
	Replicas int
	// ReplicaTimeout is used with Replicas: whole milliseconds, shorter than the TTL.
	// Default: 1 s, or half the TTL if that is shorter.
	ReplicaTimeout time.Duration
}

// Renew configures and limits the renewal of a lease.
type Renew struct {
	Every   time.Duration // interval between renewals, at least 1 ms and less than the TTL; default TTL/3
	Max     int           // number of renewals, after which the lease expires; 0 = no limit
	MaxHold time.Duration // the lease ends this long after the acquire, and the lock is released after Options.Delay; 0 = no limit
	Off     bool          // no renewal: the lease ends TTL after the acquire, unless [Lease.Extend] is called
}

// Wait configures how Lock waits for a lock that is held.
type Wait struct {
	// Poll is the pause between attempts. With Poll, each waiting goroutine asks the
	// server itself, and Lock does not subscribe to the release.
	Poll time.Duration
	// Jitter, from 0 to 1, spreads each pause evenly over Poll ± Poll×Jitter, so that
	// clients that were refused together do not retry together.
	Jitter float64
	// MaxTries is the number of attempts after which Lock returns [ErrHeld]; 0 = no
	// limit. It requires Poll.
	MaxTries int
}

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour
	minEvery   = time.Millisecond
)

// Validate returns an error that matches [ErrArgument] if no lock can have these options.
// The constructors of locks return the same error, and one if an option does not apply to their
// kind.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults sets the defaults and validates the result.
func (o Options) withDefaults() (Options, error) {
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	o.Renew.Every = cmp.Or(o.Renew.Every, o.TTL/3)
	if o.Replicas > 0 {
		o.ReplicaTimeout = cmp.Or(o.ReplicaTimeout, min(time.Second, (o.TTL/2).Truncate(time.Millisecond)))
	}
	if err := checkTTL(o.TTL); err != nil {
		return o, err
	}
	bad := func(format string, args ...any) (Options, error) {
		return o, fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
	}
	switch w, r := o.Wait, o.Renew; {
	case o.Delay < 0 || o.Delay > maxTTL || o.Delay%time.Millisecond != 0:
		return bad("delay %v; it must be whole milliseconds between 0 and %v", o.Delay, maxTTL)
	case r.Every < minEvery || r.Every >= o.TTL:
		return bad("renewal every %v; it must be at least %v and shorter than the TTL of %v", r.Every, minEvery, o.TTL)
	case r.Max < 0 || r.MaxHold < 0:
		return bad("negative bound on renewal")
	case w.Poll < 0 || w.MaxTries < 0:
		return bad("negative wait")
	case w.Jitter < 0 || w.Jitter > 1:
		return bad("jitter %v; it must be between 0 and 1", w.Jitter)
	case w.Poll == 0 && (w.MaxTries > 0 || w.Jitter > 0):
		return bad("MaxTries and Jitter go with Poll")
	case o.Replicas < 0:
		return bad("%d replicas", o.Replicas)
	case o.Replicas == 0 && o.ReplicaTimeout != 0:
		return bad("ReplicaTimeout goes with Replicas")
	case o.Replicas > 0 && (o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout >= o.TTL || o.ReplicaTimeout%time.Millisecond != 0):
		return bad("wait %v for replicas; it must be whole milliseconds and shorter than the TTL of %v", o.ReplicaTimeout, o.TTL)
	}
	return o, nil
}

// keyTTL returns the TTL of an acquired key on the server.
func (o Options) keyTTL() time.Duration { return o.TTL + o.Delay }

// checkTTL refuses a TTL that Redis would round or misread.
func checkTTL(ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL || ttl%time.Millisecond != 0 {
		return fmt.Errorf("%w: TTL %v; it must be whole milliseconds between %v and %v", ErrArgument, ttl, minTTL, maxTTL)
	}
	return nil
}

// Client acquires locks for one owner. It is safe for concurrent use. The methods of the zero value
// return [ErrArgument], and so do those of a zero [Quorum].
type Client struct {
	*core
	owner       string
	parent      *Client // the client on which As was called; nil = New made this one
	localQueues localQueues

	closed atomic.Bool // Close was called
}

// core is what the clients of one New share: the connections, the renewer, and the
// notifier that wakes waiters.
type core struct {
	id        string // UUID
	process   string // "<owner>~<last 12 characters of id>"; the process registers by this name when it waits
	transport transport.Transport
	observe   func(Event)
	scripted  atomic.Bool     // the server has run one of our scripts
	noIfEqual atomic.Bool     // the server has refused SET with IFEQ
	alive     context.Context // ends with shutDown
	stop      context.CancelFunc
	undos     *semaphore.Weighted // in progress, up to maxUndos
	notifier  notifier
	writers   waitingWriters // waiting writers of read/write locks
	closes    broadcast      // Close was called on one of the clients
	workers   sync.WaitGroup // goroutines that run until alive ends

	// Every call writes the following fields. They come last, so that they share no
	// cache line with the fields that every call reads.
	renewer renewer
	tasks   taskGroup    // undos, renewals, attempts and calls of Unlock
	waits   atomic.Int64 // calls of Lock in progress
	counts  [eventKinds]atomic.Int64
}

// New returns a client for the server of rdb: a [redis.Client], single or behind
// Sentinel, or a [redis.ClusterClient]. For others it returns [ErrArgument]. The client copies address, credentials and
// dialer from rdb's options but opens its own connections, because a lock's commands
// must not be retried by go-redis. rdb still belongs to the caller, and its hooks are
// not called. If rdb has a StreamingCredentialsProvider, the connection of the commands
// authenticates again, in their order, when the credentials change. That to a cluster does
// so only when it is dialed again. New does not connect; the first command does.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		if rdb != nil {
			return newClient(transport.NewPipe(transport.CloneOptions(rdb)), cfg)
		}
	case *redis.ClusterClient:
		if rdb != nil {
			t, err := transport.NewCluster(rdb)
			if err != nil {
				return nil, fmt.Errorf("lock: %w", err)
			}
			return newClient(t, cfg)
		}
	}
	return nil, fmt.Errorf("lock: new client: %w: it needs a redis.Client or a redis.ClusterClient, and got %T(%[2]v)", ErrArgument, rdb)
}

// newClient returns a client that owns t.
func newClient(t transport.Transport, cfg Config) (*Client, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: make an id: %w", err), t.Close())
	}
	if cfg.Owner == "" {
		cfg.Owner = defaultOwner()
	}
	if err := checkOwner(cfg.Owner); err != nil {
		return nil, errors.Join(fmt.Errorf("lock: new client: %w", err), t.Close())
	}
	c := &core{id: id.String(), transport: t, observe: cfg.Observe, undos: semaphore.NewWeighted(maxUndos)}
	c.process = cfg.Owner + "~" + processOf(c.id)
	c.alive, c.stop = context.WithCancel(context.Background())
	c.renewer.init()
	c.notifier.init(c)
	c.workers.Go(c.runRenewer)
	return &Client{core: c, owner: cfg.Owner}, nil
}

// As returns a client with another owner that shares the connections of c. A lock that
// it holds is held for c, too, as for any other client. It is closed with c and need
// not be closed itself.
func (c *Client) As(owner string) *Client {
	if c.isZero() {
		return &Client{}
	}
	return &Client{core: c.core, owner: owner, parent: c}
}

// isZero reports whether New did not return c.
func (c *Client) isZero() bool { return c == nil || c.core == nil }

// isClosed reports whether Close was called on c or on a client that c comes from.
func (c *Client) isClosed() bool {
	for ; c != nil; c = c.parent {
		if c.closed.Load() {
			return true
		}
	}
	return false
}

// isOf reports whether c is other or comes from it.
func (c *Client) isOf(other *Client) bool {
	for ; c != nil; c = c.parent {
		if c == other {
			return true
		}
	}
	return false
}

// await waits until ready or acquired is closed, and returns nil. It returns an error if ctx has
// ended or c was closed, even if they are.
func (c *Client) await(ctx context.Context, ready, acquired <-chan struct{}) error {
	for {
		closed := c.closes.next() // before isClosed: no Close is missed in between
		if cause := stopCause(ctx, c); cause != nil {
			return cause
		}
		select {
		case <-ready:
			return stopCause(ctx, c)
		case <-acquired:
			return stopCause(ctx, c)
		case <-ctx.Done():
		case <-closed:
		}
	}
}

// closeTimeout limits how long Close waits for a server that does not answer: once for
// the releases and once for the undos.
const closeTimeout = time.Second

// Close closes c and all clients that come from it. Waiting calls of Lock return
// [ErrClosed]. Held locks are released, and the contexts of their leases end with
// cause ErrClosed. Attempts in progress are undone.
//
// Closing the client that New returned closes its connections, too, and waits until
// all of its goroutines have ended, except for running calls of [Config.Observe].
// Close may be called from there. It returns within a few seconds even if the server
// does not answer. Further calls do nothing.
func (c *Client) Close() error {
	if c.isZero() {
		return fmt.Errorf("lock: close: %w: New did not return this client", ErrArgument)
	}
	if c.closed.Swap(true) {
		return nil
	}
	c.closes.wake()
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

// releaseAll ends the holds for which match returns true and releases them in one
// pipeline. It returns one of the errors.
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

// shutDown stops all goroutines and waits for them.
func (c *core) shutDown() error {
	c.stop()
	c.tasks.close()
	err := c.transport.Close()
	<-c.tasks.idle()
	c.workers.Wait()
	if err != nil {
		return fmt.Errorf("lock: close: %w", err)
	}
	return nil
}

// emit counts an event and passes it to Observe. The caller is one of c.tasks. During
// Observe it does not count as one, because Observe may call Close, which waits for
// them.
func (c *core) emit(e Event) {
	c.counts[e.Kind].Add(1)
	if c.observe != nil {
		c.tasks.done()
		defer c.tasks.add()
		c.observe(e)
	}
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events that [Config.Observe] receives.
const (
	Contended  EventKind = iota // another client holds the lock; the caller begins to wait or gives up
	Acquired                    // the lock was acquired, after Elapsed and Attempts
	Renewed                     // the lease was renewed
	Released                    // the lock was released, after Elapsed
	Lost                        // the server no longer knows the token
	Expired                     // the lease expired without release or renewal
	HandedOver                  // follows the end of a hold: the lock went to the waiter with this Token, which has yet to claim it
	Failed                      // an attempt ended with Err, other than ErrHeld
	NotRenewed                  // a renewal failed with Err or is late; another one follows
	Undone                      // a given-up attempt was undone; with Err it was not, but its TTL has passed
	GaveUp                      // a call of Lock failed with Err, after Elapsed and Attempts

	eventKinds = iota
)

// String returns the name for logs.
func (k EventKind) String() string {
	names := [...]string{"contended", "acquired", "renewed", "released", "lost", "expired", "handed over",
		"failed", "not renewed", "undone", "gave up", "unknown"}
	return names[min(k, eventKinds)]
}

// Event is a change of one lock of a client.
type Event struct {
	Kind     EventKind
	At       time.Time
	Key      string
	Owner    string
	Token    string        // of this attempt; none for Contended and GaveUp; of the next holder for HandedOver
	Attempts int           // Acquired, GaveUp: number of attempts; one may send several commands
	Elapsed  time.Duration // Acquired, GaveUp: since Lock or TryLock was called; Released, Lost, Expired: since the acquire; Renewed: since it was due, when it was sent
	Err      error         // Failed, NotRenewed, Undone, GaveUp: reason
}

// Stats are counts of a client and all clients that share its connections.
type Stats struct {
	Leases  int                 // valid now
	Waiting int                 // calls of Lock in progress
	Events  map[EventKind]int64 // since New, with and without [Config.Observe]
}

// Stats returns the current counts. It sends nothing.
func (c *Client) Stats() Stats {
	if c.isZero() {
		return Stats{}
	}
	s := Stats{Leases: len(c.renewer.all(func(*hold) bool { return true })), Waiting: int(c.waits.Load()), Events: make(map[EventKind]int64, eventKinds)}
	for k := range c.counts {
		s.Events[EventKind(k)] = c.counts[k].Load()
	}
	return s
}
