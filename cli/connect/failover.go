package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace/inspect"
)

// Writer returns a client for a load. It follows the master that the Sentinels name, or
// writes to all masters of a cluster. failover makes a replica a master; it is nil for a
// single server. Close closes the client.
func (t *Target) Writer() (rdb inspect.Client, failover func(context.Context) error, err error) {
	nodes := t.servers.endpoints()
	o, err := t.options(nodes[0])
	if err != nil {
		return nil, nil, err
	}
	all := &redis.UniversalOptions{
		Dialer: o.Dialer, DB: o.DB, Username: o.Username, Password: o.Password, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	switch t.mode {
	case "cluster":
		all.TLSConfig = o.TLSConfig
		for _, e := range nodes {
			all.Addrs = append(all.Addrs, e.addr)
		}
		cluster := redis.NewClusterClient(all.Cluster())
		rdb, failover = cluster, clusterFailover(cluster)
	case "sentinel":
		all.Addrs, all.Dialer = []string{"master " + t.flags.master}, t.masterDialer(o.Dialer)
		rdb, failover = redis.NewClient(all.Simple()), t.failover
	default:
		return t.Client, nil, nil
	}
	t.OnClose(func() { _ = rdb.Close() })
	return rdb, failover, nil
}

// masterDialer returns a dialer that connects, by dial, to the master that the Sentinels name. go-redis'
// failover client cannot use TLS for only the Sentinels or only the servers, and panics
// with credentials that change.
func (r *Resolved) masterDialer(dial dialer) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		addr, err := r.askSentinels(ctx, false)
		if err != nil {
			return nil, err
		}
		return dial(ctx, "tcp", addr)
	}
}

// Remote describes a node that is not on this machine and that a load may reach: a node
// of the cluster, or the master or a replica that the Sentinels watch. It returns "" if
// there is none.
func (t *Target) Remote(ctx context.Context) (string, error) {
	where, of, err := t.announced(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range where {
		if !node.local() {
			return fmt.Sprintf("%s, a node of %s,", node, of), nil
		}
	}
	return "", nil
}

// announced returns the nodes of the cluster, or the master and the replicas that the
// Sentinels watch, and the name of either. A single server announces none.
func (t *Target) announced(ctx context.Context) (where []endpoint, of string, err error) {
	switch t.mode {
	case "sentinel":
		of = "the set that the Sentinels watch"
		where, err = t.watched(ctx)
	case "cluster":
		of = "the cluster"
		where, err = t.servers.where(ctx)
	}
	if err != nil {
		err = noConnection(t.seeds[0], err, t.Timeout)
	}
	return where, of, err
}

// withSentinel calls f for each Sentinel in turn until f returns nil.
func (r *Resolved) withSentinel(f func(*redis.SentinelClient) error) error {
	var errs []error
	for _, e := range r.sentinels {
		sentinel, err := r.sentinel(e)
		if err != nil {
			return err
		}
		err = f(sentinel)
		_ = sentinel.Close()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("ask the Sentinel at %s: %w", e.addr, err))
	}
	return errors.Join(errs...)
}

// watched returns the addresses of the master and its replicas from the Sentinels.
// A failover may make any of them the master of the load.
func (r *Resolved) watched(ctx context.Context) (all []endpoint, err error) {
	like := r.seeds[0]
	like.network = "tcp"
	err = r.withSentinel(func(sentinel *redis.SentinelClient) error {
		master, err := sentinel.GetMasterAddrByName(ctx, r.flags.master).Result()
		if err != nil {
			return err
		}
		replicas, err := sentinel.Replicas(ctx, r.flags.master).Result()
		if err != nil {
			return err
		}
		like.addr = net.JoinHostPort(master[0], master[1])
		all = []endpoint{like}
		for _, one := range replicas {
			like.addr = net.JoinHostPort(one["ip"], one["port"])
			all = append(all, like)
		}
		return nil
	})
	return all, err
}

// failoverPoll is the time between two questions for the address of the master.
const failoverPoll = 20 * time.Millisecond

// failover makes the Sentinels promote a replica.
func (r *Resolved) failover(ctx context.Context) error {
	return r.withSentinel(func(sentinel *redis.SentinelClient) error {
		before, err := sentinel.GetMasterAddrByName(ctx, r.flags.master).Result()
		if err == nil {
			err = sentinel.Failover(ctx, r.flags.master).Err()
		}
		if err != nil {
			return err
		}
		for {
			now, err := sentinel.GetMasterAddrByName(ctx, r.flags.master).Result()
			if err == nil && (now[0] != before[0] || now[1] != before[1]) {
				return nil
			}
			select {
			case <-time.After(failoverPoll):
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			}
		}
	})
}

// clusterFailover returns a function that promotes a replica of the cluster.
func clusterFailover(cluster *redis.ClusterClient) func(context.Context) error {
	return func(ctx context.Context) error {
		//lint:ignore SA1019 servers before 7.0 do not know CLUSTER SHARDS
		slots, err := cluster.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, part := range slots {
			if len(part.Nodes) < 2 {
				continue
			}
			replica := part.Nodes[1].Addr
			found := errors.New("the cluster has no replica")
			err := cluster.ForEachSlave(ctx, func(ctx context.Context, node *redis.Client) error {
				if node.Options().Addr != replica {
					return nil
				}
				found = node.ClusterFailover(ctx).Err()
				return nil
			})
			return errors.Join(err, found)
		}
		return errors.New("the cluster has no replicas")
	}
}
