package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/internal/transport"
)

// QuorumConfig configures a [Quorum]. The zero value works.
type QuorumConfig struct {
	Config
	// NodeTimeout bounds the wait for one node; after it the other nodes decide. It
	// must be shorter than any TTL, and should be far shorter, but longer than it takes to
	// connect. Default: a fiftieth of the TTL, but at least 5 ms and at most 50 ms.
	NodeTimeout time.Duration
	// MinUptime ignores the vote of a node that has been up for less than this time,
	// give or take 1 s. Otherwise a node that lost its data in a crash may grant a
	// lock that is held. Set it to the longest TTL in use, unless every node writes
	// to disk before it answers. It needs the permission to call INFO.
	MinUptime time.Duration
}

// Quorum is an identity that locks on several independent servers at the same time, by
// [Quorum.Redlock]. It works while fewer than half of the servers are down. Four nodes
// survive no more failures than three, so use an odd number. Even numbers and one
// node work, too.
//
// The nodes must not replicate each other. List them in the same order in all
// clients: the first node that answers decides which of many clients goes first.
// With different orders locks are as safe, but clients may need more attempts.
//
// A Quorum is safe for concurrent use.
type Quorum struct {
	client  *Client
	nodes   *nodeSet
	timeout time.Duration // 0 = by the TTL
}

// NewQuorum returns an identity that locks on nodes: single servers, or masters
// behind Sentinel. It takes address, credentials and dialer of each client and opens
// connections of its own when it needs them. The clients stay the caller's.
//
// NewQuorum refuses equal addresses with [ErrArgument]. If two addresses lead to one
// server, the methods of all locks return ErrArgument once both are connected, provided that the
// user may call INFO.
func NewQuorum(nodes []*redis.Client, cfg QuorumConfig) (*Quorum, error) {
	if err := checkNodes(nodes, cfg); err != nil {
		return nil, fmt.Errorf("lock: new quorum: %w", err)
	}
	s := &nodeSet{minUptime: cfg.MinUptime, ready: make(chan struct{})}
	for _, rdb := range nodes {
		s.nodes = append(s.nodes, newNode(rdb, &s.identified))
	}
	s.Transport = s.nodes[0].Transport
	client, err := newClient(s, cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Quorum{client: client, nodes: s, timeout: cfg.NodeTimeout}, nil
}

func checkNodes(nodes []*redis.Client, cfg QuorumConfig) error {
	if len(nodes) == 0 {
		return fmt.Errorf("%w: no nodes", ErrArgument)
	}
	if cfg.NodeTimeout < 0 || cfg.MinUptime < 0 {
		return fmt.Errorf("%w: negative time", ErrArgument)
	}
	if slices.Contains(nodes, nil) {
		return fmt.Errorf("%w: a node is nil", ErrArgument)
	}
	for i, rdb := range nodes {
		addr := rdb.Options().Addr
		equal := func(other *redis.Client) bool { return other.Options().Addr == addr }
		if addr != sentinelAddr && slices.ContainsFunc(nodes[:i], equal) {
			return fmt.Errorf("%w: %s is listed twice", ErrArgument, addr)
		}
	}
	return nil
}

// sentinelAddr is the address of a go-redis client that finds its server by Sentinel.
const sentinelAddr = "FailoverClient"

// As returns another identity on the same connections. q cannot take a lock that the
// other identity holds. The other identity ends with q.
func (q *Quorum) As(owner string) *Quorum {
	return &Quorum{client: q.client.As(owner), nodes: q.nodes, timeout: q.timeout}
}

// Close ends the identity, as [Client.Close] does.
func (q *Quorum) Close() error { return q.client.Close() }

const (
	minNodeTimeout = 5 * time.Millisecond
	maxNodeTimeout = 50 * time.Millisecond
)

// nodeTimeout returns the time-out of one node for a lock with this TTL.
func (q *Quorum) nodeTimeout(ttl time.Duration) time.Duration {
	if q.timeout > 0 {
		return q.timeout
	}
	return min(max(ttl/50, minNodeTimeout), maxNodeTimeout)
}

// nodeSet is the nodes of a quorum, in their order. As a transport it is that of the
// first node, to which waiters subscribe; Close closes all nodes.
type nodeSet struct {
	transport.Transport
	nodes     []*node
	minUptime time.Duration

	connectOnce sync.Once
	ready       chan struct{} // closed once each node has answered or timed out

	identified atomic.Int64 // counts the answers of nodes to identify
	verified   atomic.Int64 // the value of identified at the last check without duplicates
}

// Close implements [transport.Transport].
func (s *nodeSet) Close() error {
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes { // concurrently: a node that does not answer takes seconds
		all.Go(func() { errs[i] = n.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// majority returns the number of nodes in a quorum.
func (s *nodeSet) majority() int { return len(s.nodes)/2 + 1 }

// connectAll sends one command to every node before the first attempt: after it the
// connections are open, and nodes that do not answer and addresses of the same
// server are known.
func (s *nodeSet) connectAll(ctx context.Context, c *core, timeout time.Duration) error {
	select {
	case <-s.ready:
		return s.checkDuplicates()
	default:
	}
	s.connectOnce.Do(func() {
		var calls sync.WaitGroup
		for _, n := range s.nodes {
			calls.Add(1)
			c.tasks.spawn(func() { defer calls.Done(); n.ping(c.alive, timeout) })
		}
		c.tasks.spawn(func() { calls.Wait(); close(s.ready) })
	})
	select {
	case <-s.ready:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.alive.Done():
		return ErrClosed
	}
	return s.checkDuplicates()
}

// checkDuplicates returns an error if two nodes are the same server.
func (s *nodeSet) checkDuplicates() error {
	identified := s.identified.Load()
	if identified == s.verified.Load() {
		return nil
	}
	seen := make(map[string]*node, len(s.nodes))
	for _, n := range s.nodes {
		id := n.serverID()
		if other := seen[id]; other != nil && id != "" {
			return fmt.Errorf("%w: %s and %s are the same server", ErrArgument, other.addr, n.addr)
		}
		seen[id] = n
	}
	s.verified.Store(identified)
	return nil
}

// askOrder returns the indexes of the nodes in the order in which to ask them. Nodes
// that did not answer last time come last.
func (s *nodeSet) askOrder() []int {
	order := make([]int, 0, len(s.nodes))
	for _, unresponsive := range []bool{false, true} {
		for i, n := range s.nodes {
			if n.unresponsive.Load() == unresponsive {
				order = append(order, i)
			}
		}
	}
	return order
}
