package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has the parts of a load for Sentinels and clusters: following the master,
// and failovers as faults.

// followMaster returns a client of the master, wherever the Sentinels locate it.
func (c *connFlags) followMaster(e endpoint) (*redis.Client, error) {
	o, err := c.options(e)
	if err != nil {
		return nil, err
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: c.master, SentinelAddrs: c.sentinelAddresses(), DB: o.DB,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		DisableIdentity: true,
	}), nil
}

// withSentinel calls f for each Sentinel in turn until f returns nil.
func (c *connFlags) withSentinel(f func(*redis.SentinelClient) error) error {
	var errs []error
	for _, addr := range c.sentinelAddresses() {
		o, err := c.options(endpoint{network: "tcp", addr: addr, tls: c.security.tls})
		if err != nil {
			return err
		}
		o.OnConnect = nil // a Sentinel does not know these commands
		sentinel := redis.NewSentinelClient(o)
		err = f(sentinel)
		_ = sentinel.Close()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("ask the Sentinel at %s: %w", addr, err))
	}
	return errors.Join(errs...)
}

// announced returns the addresses of the master and its replicas from the Sentinels.
// A failover may make any of them the master of the load.
func (c *connFlags) announced(ctx context.Context, like endpoint) (all []endpoint, err error) {
	like.network = "tcp"
	err = c.withSentinel(func(sentinel *redis.SentinelClient) error {
		master, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
		if err != nil {
			return err
		}
		replicas, err := sentinel.Replicas(ctx, c.master).Result()
		if err != nil {
			return err
		}
		like.addr = net.JoinHostPort(master[0], master[1])
		all = []endpoint{like}
		for _, r := range replicas {
			like.addr = net.JoinHostPort(r["ip"], r["port"])
			all = append(all, like)
		}
		return nil
	})
	return all, err
}

// failoverPoll is the time between two questions for the address of the master.
const failoverPoll = 20 * time.Millisecond

// failover makes the Sentinels promote a replica.
func (c *connFlags) failover(ctx context.Context) error {
	return c.withSentinel(func(sentinel *redis.SentinelClient) error {
		before, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
		if err == nil {
			err = sentinel.Failover(ctx, c.master).Err()
		}
		if err != nil {
			return err
		}
		for {
			now, err := sentinel.GetMasterAddrByName(ctx, c.master).Result()
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
