package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClusterOptions say what a cluster is like. The zero value is three masters
// without replicas.
type ClusterOptions struct {
	Masters     int           // default 3
	Replicas    int           // of each master
	NodeTimeout time.Duration // silence after which a node counts as down; default 1 s
	Args        []string      // further arguments of each server
}

// Cluster is a Redis Cluster of children: see [Child]. The masters share the
// slots evenly, in order.
type Cluster struct {
	children // the masters at the start, then the replicas
	masters  int
}

// slots is how many a cluster has.
const slots = 16384

// StartCluster starts a cluster and returns when each of its nodes knows all
// others and serves. ctx bounds the start, which takes some 2 s: a node of a new
// cluster does not serve before.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if o.Masters == 0 {
		o.Masters = 3
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = time.Second
	}
	c := &Cluster{masters: o.Masters}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o ClusterOptions) error {
	for range o.Masters * (1 + o.Replicas) {
		if err := c.addNode(ctx, o); err != nil {
			return err
		}
	}
	clients := make([]*redis.Client, len(c.children))
	for i, node := range c.children {
		clients[i] = dial(node)
		defer clients[i].Close()
	}
	for _, step := range []func(context.Context, []*redis.Client) error{c.shareSlots, c.meet, c.replicate, awaitCluster} {
		if err := step(ctx, clients); err != nil {
			return fmt.Errorf("start a redis cluster: %w", err)
		}
	}
	return nil
}

// addNode starts a server that will be a node.
func (c *Cluster) addNode(ctx context.Context, o ClusterOptions) error {
	args := append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(o.NodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}, o.Args...)
	_, err := c.add(ctx, ChildOptions{Args: args, clusterBus: true})
	return err
}

// shareSlots gives each master its part of the slots, and an epoch of its own, so
// that there is nothing for them to settle first.
func (c *Cluster) shareSlots(ctx context.Context, clients []*redis.Client) error {
	for i, rdb := range clients {
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if i >= c.masters {
			continue
		}
		var own []int // ADDSLOTSRANGE is shorter, and missing before Redis 7.0
		for slot := i * slots / c.masters; slot < (i+1)*slots/c.masters; slot++ {
			own = append(own, slot)
		}
		if err := rdb.ClusterAddSlots(ctx, own...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// meet introduces all to all, and waits until they know each other.
func (c *Cluster) meet(ctx context.Context, clients []*redis.Client) error {
	for i, rdb := range clients {
		for _, other := range c.children[i+1:] {
			if err := rdb.Do(ctx, "cluster", "meet", "127.0.0.1", portOf(other.Addr())).Err(); err != nil {
				return err
			}
		}
	}
	return awaitAll(ctx, clients, "the nodes to know each other", func(_ int, rdb *redis.Client) (bool, error) {
		nodes, err := rdb.ClusterNodes(ctx).Result()
		return strings.Count(nodes, "\n") == len(clients) && !strings.Contains(nodes, "handshake"), err
	})
}

// replicate hands the replicas to the masters in turn, and waits until they are
// in sync and every node has heard of it.
func (c *Cluster) replicate(ctx context.Context, clients []*redis.Client) error {
	for i := c.masters; i < len(clients); i++ {
		id, err := clients[i%c.masters].Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return err
		}
		if err := clients[i].ClusterReplicate(ctx, id).Err(); err != nil {
			return err
		}
	}
	return awaitAll(ctx, clients, "the replicas to be in sync", func(i int, rdb *redis.Client) (bool, error) {
		if ok, err := inSync(ctx, rdb); i >= c.masters && !ok {
			return false, err
		}
		nodes, err := rdb.ClusterNodes(ctx).Result()
		return strings.Count(nodes, "slave") == len(clients)-c.masters, err
	})
}

// awaitCluster waits until every node serves.
func awaitCluster(ctx context.Context, clients []*redis.Client) error {
	return awaitAll(ctx, clients, "the cluster to serve", func(_ int, rdb *redis.Client) (bool, error) {
		info, err := rdb.ClusterInfo(ctx).Result()
		return hasLine(info, "cluster_state:ok"), err
	})
}

// awaitAll waits until it is true of every node.
func awaitAll(ctx context.Context, clients []*redis.Client, what string, cond func(i int, rdb *redis.Client) (bool, error)) error {
	for i, rdb := range clients {
		if err := await(ctx, what, func() (bool, error) { return cond(i, rdb) }); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all nodes.
func (c *Cluster) Stop() error { return c.stop() }

// Addrs returns where the nodes listen.
func (c *Cluster) Addrs() []string { return c.addrs() }

// Nodes returns all nodes: the masters of the start first, then the replicas.
func (c *Cluster) Nodes() []*Child { return c.children }

// Node returns the node that listens at addr, nil if none does.
func (c *Cluster) Node(addr string) *Child { return c.at(addr) }

// ClusterForTest starts a cluster that ends with the test. Where redis-server is
// missing it does what [ForTest] does.
func ClusterForTest(t TB, o ClusterOptions) *Cluster {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Cluster, error) { return StartCluster(ctx, o) }, (*Cluster).Stop)
}
