package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// cluster is the transport to a cluster. It uses go-redis' full-duplex
// AutoPipeline, which is marked experimental. Nothing outside this file depends on it.
type cluster struct {
	tracker *connTracker
	client  *redis.ClusterClient
	pipe    *redis.AutoPipeliner
}

// NewCluster returns a transport to the cluster of rdb. It has rdb's addresses and
// credentials, and connections of its own.
func NewCluster(rdb *redis.ClusterClient) (Transport, error) {
	o := *rdb.Options()
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.ClusterStateReloadInterval = time.Second
	o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the slice that it is given
	// A replica could answer with an old state of a key.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = noMaintNotifications()
	if o.Dialer == nil {
		o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	}
	tracker := &connTracker{}
	tracker.wrap(&o.Dialer)
	client := redis.NewClusterClient(&o)
	pipelined := redis.DefaultAutoPipelineOptions()
	pipelined.FullDuplex = true
	pipe, err := client.AsyncAutoPipelineWithOptions(pipelined)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("open pipeline: %w", err)
	}
	return &cluster{tracker, client, pipe}, nil
}

func (c *cluster) Send(ctx context.Context, cmd *Command) Reply {
	sent := cmd.cmd(ctx)
	return &clusterReply{c.pipe.Submit(ctx, noRetry{sent}), cmd, sent}
}

// clusterReply is the reply to a command that go-redis has sent.
type clusterReply struct {
	redis.AutoFuture
	command *Command
	sent    *redis.Cmd
}

func (r *clusterReply) Wait(ctx context.Context) error {
	err := r.WaitContext(ctx)
	if err == nil {
		r.command.Value = r.sent.Val()
	}
	return err
}

// noRetry is a command that go-redis does not send again; a cluster client ignores
// MaxRetries. It still follows redirections: the redirecting node has not executed the
// command.
type noRetry struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

// maxHops is the number of redirections to other cluster nodes that are followed.
const maxHops = 3

func (c *cluster) ExecWithWait(ctx context.Context, key string, cmd *Command, replicas int, timeout time.Duration) (acks int64, err error) {
	node, err := c.client.MasterForKey(ctx, key)
	for hop, asking := 0, false; err == nil; hop++ {
		acks, err = execWithWait(ctx, node, asking, cmd, replicas, timeout)
		var addr string
		if addr, asking = redirected(err); addr == "" || hop == maxHops {
			break
		}
		node, err = c.masterAt(ctx, addr)
	}
	return acks, err
}

// DropStale does nothing: cluster nodes report who is the master.
func (c *cluster) DropStale() {}

func (c *cluster) Clustered() bool { return true }

func (c *cluster) Subscribe(ctx context.Context) *redis.PubSub {
	return c.client.Subscribe(ctx)
}

func (c *cluster) Close() error {
	c.tracker.close() // first: otherwise Close waits for a node that does not answer
	return c.client.Close()
}

// redirected returns the address to which an error redirects; empty = none. ask means
// that the slot itself has not moved yet.
func redirected(err error) (addr string, ask bool) {
	ask = redis.HasErrorPrefix(err, "ASK ")
	if !ask && !redis.HasErrorPrefix(err, "MOVED ") {
		return "", false
	}
	words := strings.Fields(err.Error())
	return words[len(words)-1], ask
}

var errNoMaster = errors.New("it is not a known master")

// masterAt returns the cluster's master with that address.
func (c *cluster) masterAt(ctx context.Context, addr string) (*redis.Client, error) {
	found := make(chan *redis.Client, 1)
	err := c.client.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			found <- node
		}
		return nil
	})
	select {
	case node := <-found:
		return node, nil
	default:
		return nil, fmt.Errorf("find cluster node %s: %w", addr, cmp.Or(err, errNoMaster))
	}
}
