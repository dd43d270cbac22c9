package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"locktop/internal/server"
)

// ClusterOptions configures a Cluster. The zero value has three masters and no
// replicas.
type ClusterOptions struct {
	Masters     int           // default 3
	Replicas    int           // of each master
	NodeTimeout time.Duration // silence after which a node counts as down; default 1 s
	Args        []string      // further arguments of each server
}

// Cluster is a Redis Cluster of [server.Child] servers. The masters have equal parts of the
// slots, in order.
type Cluster struct {
	children children // the masters at the start, then the replicas
	masters  int
}

// slots is the number of slots of a cluster.
const slots = 16384

// StartCluster starts a cluster and returns when each node knows all others and
// serves. ctx limits the start. It takes about 2 s, because a node of a new cluster
// does not serve earlier.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	o.Masters = cmp.Or(o.Masters, 3)
	o.NodeTimeout = cmp.Or(o.NodeTimeout, time.Second)
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
	clients := make([]server.Client, len(c.children))
	for i, node := range c.children {
		clients[i] = dial(node)
		defer clients[i].Close()
	}
	for _, step := range []func(context.Context, []server.Client) error{c.shareSlots, c.meet, c.replicate, awaitCluster} {
		if err := step(ctx, clients); err != nil {
			return fmt.Errorf("start a redis cluster: %w", err)
		}
	}
	return nil
}

// addNode starts a server in cluster mode.
func (c *Cluster) addNode(ctx context.Context, o ClusterOptions) error {
	args := append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(o.NodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}, o.Args...)
	_, err := c.children.add(ctx, server.ChildOptions{Args: args, Port: portWithBus})
	return err
}

// shareSlots gives each master its part of the slots and a different epoch, so that
// the masters have no conflict to solve.
func (c *Cluster) shareSlots(ctx context.Context, clients []server.Client) error {
	for i, rdb := range clients {
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if i >= c.masters {
			continue
		}
		var own []int // ADDSLOTSRANGE is shorter, but needs Redis 7.0
		for slot := i * slots / c.masters; slot < (i+1)*slots/c.masters; slot++ {
			own = append(own, slot)
		}
		if err := rdb.ClusterAddSlots(ctx, own...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// meet connects all nodes with each other and waits until they know each other.
func (c *Cluster) meet(ctx context.Context, clients []server.Client) error {
	for i, rdb := range clients {
		for _, other := range c.children[i+1:] {
			if err := rdb.Do(ctx, "cluster", "meet", "127.0.0.1", portOf(other.Addr())).Err(); err != nil {
				return err
			}
		}
	}
	return awaitAll(ctx, clients, "the nodes to know each other", func(_ int, rdb server.Client) (bool, error) {
		nodes, err := rdb.ClusterNodes(ctx).Result()
		return strings.Count(nodes, "\n") == len(clients) && !strings.Contains(nodes, "handshake"), err
	})
}

// replicate assigns the replicas to the masters in turn. It waits until they are in
// sync and every node knows the replicas.
func (c *Cluster) replicate(ctx context.Context, clients []server.Client) error {
	for i := c.masters; i < len(clients); i++ {
		id, err := clients[i%c.masters].Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return err
		}
		if err := clients[i].ClusterReplicate(ctx, id).Err(); err != nil {
			return err
		}
	}
	return awaitAll(ctx, clients, "the replicas to be in sync", func(i int, rdb server.Client) (bool, error) {
		if ok, err := inSync(ctx, rdb); i >= c.masters && !ok {
			return false, err
		}
		nodes, err := rdb.ClusterNodes(ctx).Result()
		return strings.Count(nodes, "slave") == len(clients)-c.masters, err
	})
}

// awaitCluster waits until every node serves.
func awaitCluster(ctx context.Context, clients []server.Client) error {
	return awaitAll(ctx, clients, "the cluster to serve", func(_ int, rdb server.Client) (bool, error) {
		info, err := rdb.ClusterInfo(ctx).Result()
		return hasLine(info, "cluster_state:ok"), err
	})
}

// awaitAll waits until cond is true for every node.
func awaitAll(ctx context.Context, clients []server.Client, what string, cond func(i int, rdb server.Client) (bool, error)) error {
	for i, rdb := range clients {
		if err := await(ctx, what, func() (bool, error) { return cond(i, rdb) }); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all nodes.
func (c *Cluster) Stop() error { return c.children.stop() }

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string { return c.children.addrs() }

// Nodes returns all nodes: first the masters of the start, then the replicas.
func (c *Cluster) Nodes() []*server.Child { return c.children }

// Node returns the node with the address addr, or nil.
func (c *Cluster) Node(addr string) *server.Child { return c.children.at(addr) }

// ClusterForTest starts a cluster that ends with the test. Without redis-server it
// skips or fails the test, like [RedisForTest].
func ClusterForTest(t TB, o ClusterOptions) *Cluster {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Cluster, error) { return StartCluster(ctx, o) }, (*Cluster).Stop)
}
