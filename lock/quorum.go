package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// QuorumConfig says who locks over several servers, and what is asked of them.
// The zero value works.
type QuorumConfig struct {
	Config
	// NodeTimeout is how long one node may take to answer; then the others decide
	// without it. It must be far shorter than any TTL, and longer than it takes to
	// connect. Default: a fiftieth of the TTL, but 5 ms at least and 50 ms at most.
	NodeTimeout time.Duration
	// MinUptime keeps a node from granting locks until it has been up this long,
	// with a second's allowance. A node that forgets its locks in a crash may
	// otherwise grant one that is held. Set it to the longest TTL that anybody
	// uses, unless every node writes to disk before it answers. It takes the right
	// to call INFO.
	MinUptime time.Duration
}

// Quorum is an identity that locks over several independent servers at once: a
// [Redlock] is held by whoever has more than half of them. It goes on working
// while fewer than half are down. Four nodes do not survive more than three do,
// so an odd number is the sensible one; even numbers and one node work too.
//
// The nodes must not replicate each other. List them in the same order
// everywhere: the first that answers settles who goes first when many clients
// start at once. With another order locks are as safe, but clients may have to
// try more often.
//
// It is safe for concurrent use.
type Quorum struct {
	client  *Client
	nodes   *nodeSet
	timeout time.Duration // 0 = by the TTL
}

// NewQuorum returns an identity that locks over nodes: single servers, or masters
// behind Sentinel. Of each it takes address, credentials and dialer, and opens
// connections of its own; the clients stay the caller's. Nothing is dialed before
// it is needed. Equal addresses are refused with [ErrArgument]; two addresses of
// one server are told by all locks, also with ErrArgument, once the server has
// been reached by both and if it may be asked for INFO.
func NewQuorum(nodes []*redis.Client, cfg QuorumConfig) (*Quorum, error) {
	if err := checkNodes(nodes, cfg); err != nil {
		return nil, fmt.Errorf("lock: new quorum: %w", err)
	}
	e := &nodeSet{minUptime: cfg.MinUptime, ready: make(chan struct{})}
	for _, rdb := range nodes {
		n, err := newNode(rdb, &e.identified)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.nodes = append(e.nodes, n)
	}
	e.transport = e.nodes[0].transport
	client, err := newClient(e, cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Quorum{client: client, nodes: e, timeout: cfg.NodeTimeout}, nil
}

func checkNodes(nodes []*redis.Client, cfg QuorumConfig) error {
	if len(nodes) == 0 {
		return fmt.Errorf("%w: no nodes", ErrArgument)
	}
	if cfg.NodeTimeout < 0 || cfg.MinUptime < 0 {
		return fmt.Errorf("%w: negative time", ErrArgument)
	}
	for i, rdb := range nodes {
		addr := rdb.Options().Addr
		twin := func(other *redis.Client) bool { return other.Options().Addr == addr }
		if addr != sentinelAddr && slices.ContainsFunc(nodes[:i], twin) {
			return fmt.Errorf("%w: %s is listed twice", ErrArgument, addr)
		}
	}
	return nil
}

// sentinelAddr is what go-redis has for an address where Sentinel says where the
// server is.
const sentinelAddr = "FailoverClient"

// As returns another identity over the same connections: what it holds is held
// against q as against a stranger. It ends with q.
func (q *Quorum) As(owner string) *Quorum {
	return &Quorum{client: q.client.As(owner), nodes: q.nodes, timeout: q.timeout}
}

// Close ends what the identity does, as [Client.Close] does.
func (q *Quorum) Close() error { return q.client.Close() }

const (
	minNodeTimeout = 5 * time.Millisecond
	maxNodeTimeout = 50 * time.Millisecond
)

// nodeTimeout returns how long a node may take to answer for a lock of that TTL.
func (q *Quorum) nodeTimeout(ttl time.Duration) time.Duration {
	if q.timeout > 0 {
		return q.timeout
	}
	return min(max(ttl/50, minNodeTimeout), maxNodeTimeout)
}

// nodeSet is the nodes of a quorum, in their order. As a wire it is that of the
// first node, where waiters listen; closing it closes all.
type nodeSet struct {
	transport
	nodes     []*node
	minUptime time.Duration

	connectOnce sync.Once
	ready       chan struct{} // closed once all nodes have been heard of, or not in time

	identified atomic.Int64 // how often a node told which server it is
	verified   atomic.Int64 // up to which of these no two were the same
}

// close implements [wire].
func (e *nodeSet) close() error {
	errs := make([]error, len(e.nodes))
	var all sync.WaitGroup
	for i, n := range e.nodes { // together: one that hangs takes seconds
		all.Go(func() { errs[i] = n.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// majority is how many nodes make a quorum.
func (e *nodeSet) majority() int { return len(e.nodes)/2 + 1 }

// connectAll has every node called once, before the first lock is asked for: by then
// the connections stand, nodes that do not answer are known, and so are
// addresses that lead to the same server.
func (e *nodeSet) connectAll(ctx context.Context, t *core, patience time.Duration) error {
	select {
	case <-e.ready:
		return e.checkDuplicates()
	default:
	}
	e.connectOnce.Do(func() {
		var calls sync.WaitGroup
		for _, n := range e.nodes {
			calls.Add(1)
			t.tasks.spawn(func() { defer calls.Done(); n.ping(t.alive, patience) })
		}
		t.tasks.spawn(func() { calls.Wait(); close(e.ready) })
	})
	select {
	case <-e.ready:
	case <-ctx.Done():
		return ctx.Err()
	case <-t.alive.Done():
		return ErrClosed
	}
	return e.checkDuplicates()
}

// checkDuplicates returns an error if two nodes are known to be the same server.
func (e *nodeSet) checkDuplicates() error {
	introduced := e.identified.Load()
	if introduced == e.verified.Load() {
		return nil
	}
	seen := make(map[string]*node, len(e.nodes))
	for _, n := range e.nodes {
		id := n.serverID()
		if other := seen[id]; other != nil && id != "" {
			return fmt.Errorf("%w: %s and %s are the same server", ErrArgument, other.addr, n.addr)
		}
		seen[id] = n
	}
	e.verified.Store(introduced)
	return nil
}

// askOrder returns the nodes in the order in which to ask them: those that did not
// answer the last time come last.
func (e *nodeSet) askOrder() []int {
	order := make([]int, 0, len(e.nodes))
	for _, silent := range []bool{false, true} {
		for i, n := range e.nodes {
			if n.unresponsive.Load() == silent {
				order = append(order, i)
			}
		}
	}
	return order
}

// randomBetween returns a random time from the first up to the second.
func randomBetween(least, most time.Duration) time.Duration {
	return least + rand.N(most-least)
}
